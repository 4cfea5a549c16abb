#!/bin/sh
# Install Debian packages as root; otherwise print the one command that does.
set -eu

if [ "$#" -eq 0 ]; then
    echo "usage: $0 PACKAGE..." >&2
    exit 2
fi

missing=""
for package in "$@"; do
    dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "Missing Debian packages. Run:  sudo apt-get install --yes$missing" >&2
    exit 1
fi
echo "installing Debian packages (about half a minute):$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086  # one word per package
if ! { apt-get update --quiet && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $missing; } >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi

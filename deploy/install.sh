#!/bin/sh
# Install gemmed as a service of this machine, upgrade it, or remove it.
set -eu

usage() {
    cat <<'END'
usage: install.sh [--root DIR] [--python PYTHON] [--fleet] [CHECKOUT | WHEEL]
       install.sh --uninstall [--purge] [--root DIR]

Installs the checkout that this script lies in, or the one or the wheel given, into /opt/gemmed, with a user, a
systemd unit and settings in /etc/gemmed. Run again, it upgrades and leaves the settings as they are. pip takes
packages from wherever it is told to by its own settings, such as PIP_NO_INDEX and PIP_FIND_LINKS.

  --root DIR        below DIR instead of /, to try it; needs no rights, starts nothing
  --python PYTHON   3.11 or newer; python3 unless given
  --fleet           also what a fleet of arrays needs, with its units; see docs/fleet.md
  --uninstall       remove the program; settings and state stay
  --purge           remove them, too
END
}

say() { echo "install.sh: $*"; }
die() { echo "install.sh: $*" >&2; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
root="" python=python3 source=${here%/*} uninstall="" purge="" fleet=""
while [ "$#" -gt 0 ]; do
    case $1 in
        --root) [ -n "${2:-}" ] || die "--root needs a directory"; mkdir -p "$2"; root=$(cd "$2" && pwd); shift ;;
        --python) [ -n "${2:-}" ] || die "--python needs an interpreter"; python=$2; shift ;;
        --fleet) fleet=yes ;;
        --uninstall) uninstall=yes ;;
        --purge) purge=yes ;;
        -h | --help) usage; exit 0 ;;
        -*) usage >&2; exit 2 ;;
        *) source=$1 ;;
    esac
    shift
done
[ -z "$purge" ] || [ -n "$uninstall" ] || die "--purge goes with --uninstall"
[ -n "$root" ] || [ "$(id -u)" -eq 0 ] || die "needs root to install into /opt and /etc; run it with sudo, or try --root DIR"

opt=$root/opt/gemmed
settings=$root/etc/gemmed/gemmed.toml
unit=$root/etc/systemd/system/gemmed.service
sysusers=$root/etc/sysusers.d/gemmed.conf
command=$root/usr/local/bin/gemmed
fleet_units="gemmed-broker.service gemmed-fleet.service gemmed-notify.service gemmed-publish.service gemmed-scheduler.service gemmed-worker@.service"
# Once a machine of a fleet, always one: an upgrade must not leave half of it behind.
[ ! -e "${unit%/*}/gemmed-publish.service" ] || fleet=yes

# Below another root nothing runs, so there is nothing to tell.
systemctl_here() { [ -n "$root" ] || ! [ -d /run/systemd/system ] || systemctl "$@"; }

remove() {
    say "stopping and removing the service"
    [ ! -e "$unit" ] || systemctl_here disable --now gemmed
    if [ -n "$fleet" ]; then
        systemctl_here stop 'gemmed-worker@*'
        systemctl_here disable --now gemmed-broker gemmed-fleet gemmed-notify gemmed-publish gemmed-scheduler gemmed-worker@.service
        for name in $fleet_units; do rm -f "${unit%/*}/$name"; done
    fi
    rm -f "$unit" "$sysusers" "$command"
    systemctl_here daemon-reload
    say "removing $opt"
    rm -rf "$opt" "$root/var/cache/gemmed"
    if [ -z "$purge" ]; then
        say "kept: settings in ${settings%/*}, state in $root/var/lib/gemmed; --purge removes them"
        return
    fi
    say "removing ${settings%/*} and $root/var/lib/gemmed"
    rm -rf "${settings%/*}" "$root/var/lib/gemmed"
    # Files elsewhere may still be the user's; its number must not go to somebody else.
    say "kept: the user gemmed; userdel gemmed removes it"
}

check() {
    command -v systemd-sysusers >/dev/null || die "needs systemd, whose service it makes; on Debian: apt-get install systemd"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
        || die "$python is older than 3.11 or does not run; give a newer one with --python"
    [ -n "$root" ] || "$python" -c 'import sys; sys.exit(sys.base_prefix.split("/")[1] in ("home", "root"))' \
        || die "$python lives in a home, which the service does not see; give another with --python, as /usr/bin/python3"
    case $source in
        *.whl) [ -f "$source" ] || die "$source is no file; give a wheel" ;;
        *) [ -f "$source/pyproject.toml" ] || die "$source is no checkout of gemmed; give one, or a wheel" ;;
    esac
}

# A wheel is made from a copy: a build in the checkout would leave files there, and take in those of an older one.
make_wheel() {
    case $source in
        *.whl) cp "$source" "$scratch"; return ;;
    esac
    say "building $source"
    mkdir "$scratch/copy"
    (cd "$source" && cp -R pyproject.toml README.md LICENSE pipeline "$scratch/copy")
    "$opt/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$scratch" "$scratch/copy"
}

install_program() {
    "$opt/bin/python" -c 'import pip' 2>/dev/null || {
        say "making a virtual environment in $opt"
        "$python" -m venv --clear "$opt"
    }
    make_wheel
    wheel=$(echo "$scratch"/*.whl)
    say "installing $(basename "$wheel") into $opt"
    "$opt/bin/python" -m pip install --quiet --constraint "$here/../constraints.txt" "gemmed[live,mqtt,notify,web${fleet:+,fleet}] @ file://$wheel"
    # The same version may come from a newer checkout.
    "$opt/bin/python" -m pip install --quiet --no-deps --force-reinstall "$wheel"
}

install_service() {
    mkdir -p "${settings%/*}" "${unit%/*}" "${sysusers%/*}" "${command%/*}"
    ln -sfn /opt/gemmed/bin/gemmed "$command"
    if [ -e "$settings" ]; then
        say "keeping $settings"
    else
        say "writing $settings"
        install -m 644 "$here/gemmed.toml" "$settings"
    fi
    say "writing $unit"
    install -m 644 "$here/gemmed.service" "$unit"
    if [ -n "$fleet" ]; then
        say "writing the units of a fleet beside it"
        for name in $fleet_units; do install -m 644 "$here/fleet/$name" "${unit%/*}/$name"; done
    fi
    install -m 644 "$here/gemmed.sysusers" "$sysusers"
    systemd-sysusers ${root:+--root="$root"} "$sysusers"
}

if [ -n "$uninstall" ]; then
    remove
    exit 0
fi
check
if [ -z "$root" ] && command -v dpkg >/dev/null; then
    "$here/debian-packages.sh" python3-venv libportaudio2
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
install_program
install_service
systemctl_here daemon-reload
systemctl_here try-restart gemmed
[ -z "$fleet" ] || systemctl_here try-restart gemmed-fleet gemmed-notify gemmed-publish gemmed-scheduler 'gemmed-worker@*'
say "done; look at $settings, then: systemctl enable --now gemmed"

#!/bin/sh
# Who may do what at the broker: makes a user with a password, changes it, or removes it.
# shellcheck disable=SC2016  # $JS, $KV, $O and $2a$ are the broker's and bcrypt's
set -eu

usage() {
    cat <<'END'
usage: broker-user.sh DIR NAME edge|fleet|remove

Writes a user into DIR/edges.conf or DIR/fleet.conf, which nats-server.conf takes in, and the password into
DIR/NAME.password. Run again, it makes another password. A running broker reads them again when it is told:
systemctl reload gemmed-broker

  edge     may only send the sound of the array NAME
  fleet    may do everything that belongs to gemmed: for dispatcher, workers and gemmed fleet
  remove   may do nothing any more
END
}

say() { echo "broker-user.sh: $*"; }
die() { echo "broker-user.sh: $*" >&2; exit 1; }

case ${1:-} in
    -h | --help) usage; exit 0 ;;
esac
[ "$#" -eq 3 ] || { usage >&2; exit 2; }
dir=$1 name=$2 role=$3
case $name in
    "" | *[!A-Za-z0-9_-]*) die "'$name' must be letters, digits, - and _ only, as names of arrays are" ;;
    nobody) die "nobody is who is never let in; choose another name" ;;
esac
case $role in
    edge | fleet | remove) ;;
    *) die "role '$role' must be edge, fleet or remove" ;;
esac
[ -d "$dir" ] || die "$dir is no directory; certificates.sh makes it"
[ -w "$dir" ] || die "$dir cannot be written to; run this as its owner, or with sudo"
command -v openssl >/dev/null || die "needs openssl; on Debian: apt-get install openssl"
command -v perl >/dev/null || die "needs perl; on Debian: apt-get install perl-base"

# Cheap on purpose: it hides 256 bits of chance, which nobody guesses, and after a restart all arrays call at once.
hashed() {
    found=$(perl -e '$_ = <STDIN>; chomp; print crypt($_, $ARGV[0])' '$2a$04$'"$(openssl rand -hex 11 | cut -c-21).")
    case ${#found}$found in
        '60$2a$04$'*) echo "$found" ;;
        *) die "this machine's perl has no bcrypt; run this on Debian, or on another Linux with glibc" ;;
    esac
}

# One user in a line, whose beginning tells whose it is.
edge_line() {
    imports="" publish=""
    for subject in "gemmed.sound.$name" '$JS.API.STREAM.INFO.gemmed-sound' '$JS.API.INFO'; do
        imports="$imports, {service: {account: fleet, subject: \"$subject\"}}"
        publish="$publish, \"$subject\""
    done
    echo "edge-$name: {users: [{user: \"$name\", password: \"$1\"," \
        "permissions: {publish: [${publish#, }], subscribe: [\"_INBOX.>\"]}}], imports: [${imports#, }]}"
}

fleet_line() {
    echo "  {user: \"$name\", password: \"$1\", permissions: {publish:" \
        '["gemmed.>", "$JS.API.>", "$JS.ACK.>", "$JS.FC.>", "$KV.>", "$O.>"], subscribe: ["_INBOX.>", "gemmed.>"]}}'
}

# What a file holds of others, in the same file: it stays whose it is, also in a container that sees only it.
keep() {
    grep -v -e "^edge-$name: " -e "^  {user: \"$name\"," -e '^]$' "$1" >"$scratch/kept" || true
    cat "$scratch/kept" >"$1"
}

umask 077
scratch=$(mktemp -d "$dir/.new.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
edges=$dir/edges.conf fleet=$dir/fleet.conf
[ -e "$edges" ] || echo '# Written by broker-user.sh: an account for each array; passwords are bcrypt hashes.' >"$edges"
# A broker that knows nobody would let in everybody, so there always is one.
[ -e "$fleet" ] || printf '%s\n' '# Written by broker-user.sh: users of the fleet; passwords are bcrypt hashes.' 'users: [' \
    '  {user: "nobody", password: "$2a$04$nobodynobodynobodynobe...............................", permissions: {publish: {deny: ">"}, subscribe: {deny: ">"}}}' \
    ']' >"$fleet"

if [ "$role" = remove ]; then
    grep -q -e "^edge-$name: " -e "^  {user: \"$name\"," "$edges" "$fleet" || die "there is no user $name in $dir; nothing changed"
else
    # An array that is called as the fleet's user would shut out the fleet.
    [ "$role" = edge ] && other=$fleet || other=$edges
    ! grep -q -e "^edge-$name: " -e "^  {user: \"$name\"," "$other" || die "$name is in $other already; choose another name, or remove it first"
    password=$(openssl rand -hex 32)
    hash=$(echo "$password" | hashed)
fi
keep "$edges"
keep "$fleet"
[ "$role" != edge ] || edge_line "$hash" >>"$edges"
[ "$role" != fleet ] || fleet_line "$hash" >>"$fleet"
echo ']' >>"$fleet"
if [ "$role" = remove ]; then
    rm -f "$dir/$name.password"
    say "removed $name; a running broker lets it in until: systemctl reload gemmed-broker"
    exit 0
fi
echo "$password" >"$dir/$name.password"
say "user $name may call as $role; a running broker learns of it by: systemctl reload gemmed-broker"
say "password, for password_file in [broker]: $dir/$name.password"

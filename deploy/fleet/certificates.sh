#!/bin/sh
# A private authority and certificates signed by it, for the broker or for Dask.
set -eu

usage() {
    cat <<'END'
usage: certificates.sh DIR NAME[,HOST...]...

Makes a private authority in DIR, once, and for every NAME a key and a certificate that is good for a server and for a
client, under that name and the hosts given with it (names or addresses):

  certificates.sh tls/broker broker,hub.example.org,192.168.1.7
  certificates.sh tls/dask scheduler worker1 worker2 dispatcher

Run again, it renews what ends within 30 days or is for other hosts, and leaves the rest alone; a NAME that is there
keeps its hosts unless others are given. It never makes a second authority. ca.key stays where it is; nobody needs it but this script. Two directories are two authorities, which do not
believe each other.
END
}

say() { echo "certificates.sh: $*"; }
die() { echo "certificates.sh: $*" >&2; exit 1; }

authority_days=3650
days=397
renew_seconds=$((30 * 24 * 3600))

new_key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null; }

make_authority() {
    # Half of one is neither used nor replaced: the other half may be on a hundred machines.
    if [ -e "$dir/ca.key" ] && [ -e "$dir/ca.crt" ]; then
        openssl x509 -in "$dir/ca.crt" -noout -checkend 0 >/dev/null \
            || die "$dir/ca.crt has expired or cannot be read; begin with another directory, all certificates are void"
        openssl x509 -in "$dir/ca.crt" -noout -checkend $((days * 24 * 3600)) >/dev/null \
            || say "$dir/ca.crt ends before the certificates that it signs; begin with another directory soon"
        return
    fi
    [ ! -e "$dir/ca.key" ] || die "$dir/ca.key has lost its ca.crt; put it back, or begin with another directory"
    [ ! -e "$dir/ca.crt" ] || die "$dir/ca.crt has no ca.key here; run this where the authority was made"
    say "making an authority, $dir/ca.crt"
    new_key "$scratch/ca.key"
    # A number in the name: certificates of two authorities are told apart in an error.
    openssl req -new -x509 -key "$scratch/ca.key" -out "$scratch/ca.crt" -days "$authority_days" -sha256 \
        -subj "/O=gemmed/CN=gemmed authority $(openssl rand -hex 4)" \
        -addext "basicConstraints=critical,CA:TRUE,pathlen:0" -addext "keyUsage=critical,keyCertSign,cRLSign"
    mv "$scratch/ca.key" "$scratch/ca.crt" "$dir"
    chmod 644 "$dir/ca.crt"
}

is_address() {
    case $1 in
        *:*) return 0 ;;
        *[!0-9.]*) return 1 ;;
        *.*.*.*) return 0 ;;
        *) return 1 ;;
    esac
}

# DNS:a,DNS:b,IP:192.168.1.7
alternatives() {
    found=""
    for host in $(echo "$1" | tr , ' '); do
        if is_address "$host"; then found="$found,IP:$host"; else found="$found,DNS:$host"; fi
    done
    echo "${found#,}"
}

# As they were asked for, in a line before the certificate.
hosts_of() { sed -n 's/^# hosts: //p' "$1"; }

# Whether what is there still serves.
is_good() {
    [ -e "$dir/$name.crt" ] && [ -e "$dir/$name.key" ] || return 1
    openssl x509 -in "$dir/$name.crt" -noout -checkend "$renew_seconds" >/dev/null 2>&1 || return 1
    [ "$(hosts_of "$dir/$name.crt")" = "$hosts" ] || return 1
    openssl verify -CAfile "$dir/ca.crt" "$dir/$name.crt" >/dev/null 2>&1
}

make_certificate() {
    new_key "$scratch/key"
    openssl req -new -key "$scratch/key" -out "$scratch/request" -subj "/O=gemmed/CN=$name"
    cat >"$scratch/extensions" <<END
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = $hosts
END
    echo "# hosts: $hosts" >"$scratch/crt"
    openssl x509 -req -in "$scratch/request" -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -days "$days" -sha256 \
        -set_serial "0x$(openssl rand -hex 16)" -extfile "$scratch/extensions" >>"$scratch/crt" 2>"$scratch/told" \
        || die "$name cannot be signed: $(cat "$scratch/told")"
    # Into the files that are there: they stay whose they are, also in a container that sees only them.
    cat "$scratch/key" >"$dir/$name.key"
    cat "$scratch/crt" >"$dir/$name.crt"
    chmod 600 "$dir/$name.key"
    chmod 644 "$dir/$name.crt"
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
esac
[ "$#" -ge 2 ] || { usage >&2; exit 2; }
command -v openssl >/dev/null || die "needs openssl; on Debian: apt-get install openssl"
dir=$1
shift
for argument in "$@"; do
    case $argument in
        ca | ca,*) die "$argument: ca is the authority itself; choose another name" ;;
        [!A-Za-z0-9]* | *[!A-Za-z0-9.,:_-]* | *,, | *,) die "'$argument' must be NAME or NAME,HOST,HOST: letters, digits, . - _ only" ;;
    esac
    case ${argument%%,*} in
        *:*) die "'$argument' begins with an address; begin with a name, as in hub,$argument" ;;
    esac
done

# Services look for their own files there; keys are for their owner only.
(umask 022 && mkdir -p "$dir") || die "$dir cannot be made; choose another directory"
umask 077
scratch=$(mktemp -d "$dir/.new.XXXXXX") || die "$dir cannot be written to; run this as its owner"
trap 'rm -rf "$scratch"' EXIT
make_authority
for argument in "$@"; do
    name=${argument%%,*}
    hosts=$(alternatives "$argument")
    [ "$name" != "$argument" ] || [ ! -e "$dir/$name.crt" ] || hosts=$(hosts_of "$dir/$name.crt")
    if is_good; then
        say "$name is good until $(openssl x509 -in "$dir/$name.crt" -noout -enddate | cut -d= -f2)"
        continue
    fi
    make_certificate
    say "made $dir/$name.crt and $dir/$name.key, good for $days days as $hosts"
done

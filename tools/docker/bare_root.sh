# shellcheck shell=bash
# Sourced: roots of a distribution's packages, entered by bubblewrap. Root's rights are needed; docker is not.

say() { printf '==> %s\n' "$*"; }
stop() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; exit 1; }
[[ $(id -u) == 0 ]] || stop "a root of packages is made and entered as root"
for name in mmdebstrap bwrap; do
  command -v $name >/dev/null || stop "$name is missing: apt-get install --no-install-recommends mmdebstrap bubblewrap"
done

# "root_archive RELEASE FILE PACKAGE...": FILE is a root of the essential packages, apt, and these. Made once. Debian's releases, or an
# Ubuntu's with UBUNTU_MIRROR and its keyring in UBUNTU_KEYRING.
root_archive() {
  local release=$1 file=$2 options=() source=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
  [[ ! -e $file ]] || return 0
  if [[ $release != bookworm && $release != trixie ]]; then
    source=${UBUNTU_MIRROR:?names the mirror of Ubuntu}
    options=(--components=main,universe --keyring="${UBUNTU_KEYRING:?names the file with the keys of Ubuntu}")
  fi
  say "making $release of its packages"
  mkdir -p "$(dirname "$file")"
  mmdebstrap --variant=minbase --include="$(IFS=,; echo "${*:3}")" "${options[@]}" "$release" "$file.partial.tar" "$source" >"$file.log" 2>&1 ||
    { tail -n 20 "$file.log"; stop "mmdebstrap failed"; }
  mv "$file.partial.tar" "$file"
}

# "own_settings FOLDER": what this machine's clients need to reach the registries, into a root: pip's settings and certificates, and the
# compiler cache of $CCACHE_DIR at /ccache.
own_settings() {
  local certificates=${PIP_CERT:-${SSL_CERT_FILE:-}}
  mkdir -p "$1/etc/ssl/own"
  if [[ -n $certificates ]]; then
    cp "$certificates" "$1/etc/ssl/own/certificates.crt"
    printf '[global]\ncert = /etc/ssl/own/certificates.crt\n' >"$1/etc/pip.conf"
  elif [[ -e /etc/pip.conf ]]; then
    cp /etc/pip.conf "$1/etc/pip.conf"
  fi
  [[ -z ${CCACHE_DIR:-} ]] || printf 'cache_dir = /ccache\n' >"$1/etc/ccache.conf"
}

# "enter FOLDER [BWRAP_OPTION...] -- COMMAND...": the clone is shown at /clone. --cap-add, and this machine's /proc: bubblewrap inside makes
# name spaces of its own and mounts there.
enter() {
  local folder=$1 options=()
  shift
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  [[ " ${options[*]} " == *" --chdir "* ]] || options+=(--chdir /root)
  bwrap --bind "$folder" / --dev /dev --dev-bind /proc /proc --perms 1777 --tmpfs /tmp --ro-bind "$PWD" /clone --cap-add ALL --clearenv \
    --setenv HOME /root --setenv PATH /opt/slime/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin "${options[@]}" "${@:2}"
}

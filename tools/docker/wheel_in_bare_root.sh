#!/usr/bin/env bash
# Installs the wheel in a root that has python3 and nothing to compile with, and trains two steps there; says how long each took.
#
#   tools/docker/wheel_in_bare_root.sh [bookworm|noble|...] [DIST]      # wheels of ./dev wheel in DIST (default dist); as root
#
# The root is of the distribution's packages (mmdebstrap): Debian 12 (bookworm, the default), or an Ubuntu with UBUNTU_MIRROR and its
# keyring in UBUNTU_KEYRING. What the wheel requires comes from PyPI. Training itself has no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
release=${1:-bookworm}
dist=$(realpath "${2:-dist}")
folder=build/bare/$release
say() { printf '==> %s\n' "$*"; }
[[ $(id -u) == 0 ]] || { echo "wheel_in_bare_root: a root of packages is made and entered as root" >&2; exit 1; }

case $release in
  bookworm | trixie) mirror=(${DEBIAN_MIRROR:-http://deb.debian.org/debian}) ;;
  *) mirror=(--components=main,universe ${UBUNTU_KEYRING:+--keyring="$UBUNTU_KEYRING"} "${UBUNTU_MIRROR:?names the mirror of Ubuntu}") ;;
esac
if [[ ! -e $folder.tar ]]; then
  say "making $release of its packages"
  mkdir -p build/bare
  options=() sources=()
  for word in "${mirror[@]}"; do [[ $word == --* ]] && options+=("$word") || sources+=("$word"); done
  mmdebstrap --variant=minbase --include=python3,python3-venv,ca-certificates "${options[@]}" "$release" "$folder.partial.tar" "${sources[@]}" \
    >"$folder.log" 2>&1 || { tail -n 20 "$folder.log"; exit 1; }
  mv "$folder.partial.tar" "$folder.tar"
fi
rm -rf "$folder"
mkdir -p "$folder"
tar -xf "$folder.tar" -C "$folder"

certificates=${PIP_CERT:-${SSL_CERT_FILE:-}}
own=()
if [[ -n $certificates ]]; then
  own=(--setenv PIP_CERT /etc/ssl/own.crt)
  cp "$certificates" "$folder/etc/ssl/own.crt"
elif [[ -e /etc/pip.conf ]]; then
  cp /etc/pip.conf "$folder/etc/pip.conf"
fi
cp /etc/resolv.conf "$folder/etc/resolv.conf"
enter=(bwrap --bind "$folder" / --dev /dev --proc /proc --tmpfs /tmp --ro-bind "$PWD" /clone --ro-bind "$dist" /dist --unshare-pid
  --cap-add ALL --clearenv --setenv HOME /root "${own[@]}" --setenv PATH /opt/slime/bin:/usr/local/bin:/usr/bin:/bin --chdir /root)

say "$(. "$folder/etc/os-release"; echo "$PRETTY_NAME"), $("${enter[@]}" python3 --version), $("${enter[@]}" ldd --version | head -n 1)"
if "${enter[@]}" bash -c 'command -v cc c++ gcc g++'; then echo "wheel_in_bare_root: this root has a compiler" >&2; exit 1; fi
begin=$SECONDS
"${enter[@]}" python3 -m venv /opt/slime
say "an empty environment: $((SECONDS - begin)) s"
begin=$SECONDS
"${enter[@]}" /opt/slime/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --find-links /dist slime-rl
say "pip install slime-rl: $((SECONDS - begin)) s; the environment has $(du -sm "$folder/opt/slime" | cut -f1) MB"
"${enter[@]}" --unshare-net bash /clone/tools/docker/first_step.sh

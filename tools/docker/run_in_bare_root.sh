#!/usr/bin/env bash
# Runs every line of the Dockerfile without docker and without a registry of images, then trains in what it made.
#
#   tools/docker/run_in_bare_root.sh [FOLDER] [NAME=VALUE...]       # e.g. SLIME_CUDA=0; as root; 15 GB in FOLDER (default build/docker)
#
# mmdebstrap makes debian:12 of Debian's packages, nothing but the essential ones and apt. buildah executes the file in it. What else
# the root gets is what this machine's own clients need: pip's settings and certificates, and the compiler cache of $CCACHE_DIR.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=build/docker
if [[ $# -gt 0 && $1 != *=* ]]; then folder=$1; shift; fi
say() { printf '==> %s\n' "$*"; }
stop() { printf 'run_in_bare_root: %s\n' "$*" >&2; exit 1; }

[[ $(id -u) == 0 ]] || stop "a root of Debian's packages is made and entered as root"
for name in buildah mmdebstrap bwrap; do
  command -v $name >/dev/null || stop "$name is missing: apt-get install --no-install-recommends buildah mmdebstrap bubblewrap"
done
mkdir -p "$folder"
folder=$(realpath "$folder")
images() { buildah --root "$folder/images" --runroot "$folder/state" --storage-driver vfs "$@"; }

arguments=()
for setting in "$@"; do arguments+=(--build-arg "$setting"); done

if [[ ! -e $folder/debian12.tar ]]; then
  say "making Debian 12"
  mmdebstrap --variant=minbase --include=ca-certificates bookworm "$folder/partial.tar" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$folder/debian12.log" 2>&1 ||
    { tail -n 20 "$folder/debian12.log"; stop "mmdebstrap failed"; }
  mv "$folder/partial.tar" "$folder/debian12.tar"
fi

# What this machine's clients need to reach the registries.
own=$folder/own
rm -rf "$own"
mkdir -p "$own/etc/ssl/own"
certificates=${PIP_CERT:-${SSL_CERT_FILE:-}}
if [[ -n $certificates ]]; then
  cp "$certificates" "$own/etc/ssl/own/certificates.crt"
  printf '[global]\ncert = /etc/ssl/own/certificates.crt\n' >"$own/etc/pip.conf"
elif [[ -e /etc/pip.conf ]]; then
  cp /etc/pip.conf "$own/etc/pip.conf"
fi
volumes=()
if [[ -n ${CCACHE_DIR:-} ]]; then
  printf 'cache_dir = /ccache\n' >"$own/etc/ccache.conf"
  volumes+=(--volume "$CCACHE_DIR:/ccache")
fi

base=$(images from scratch)
images add -q "$base" "$folder/debian12.tar" / >/dev/null
images add -q "$base" "$own" / >/dev/null
images commit -q "$base" debian:12 >/dev/null
images rm "$base" >/dev/null

say "running the Dockerfile ${*:-}"
images bud --isolation chroot --pull-never "${volumes[@]}" "${arguments[@]}" -t slime . 2>&1 | tee "$folder/build.log" | grep -v '^$' ||
  stop "a line failed; the log is $folder/build.log"

say "training in the image, without a network"
made=$(images from --pull-never slime)
root=$(images mount "$made")
du -sh --exclude=proc "$root" | cut -f1 | xargs printf '    the image has %s\n'
# --cap-add: bubblewrap inside makes name spaces of its own.
enter=(bwrap --bind "$root" / --dev /dev --proc /proc --tmpfs /tmp --ro-bind "$PWD" /clone --unshare-pid --unshare-net --cap-add ALL
  --clearenv --setenv PATH /opt/slime/bin:/usr/local/bin:/usr/bin:/bin --setenv HOME /root --chdir /work)
"${enter[@]}" slime --version
"${enter[@]}" bash /clone/tools/docker/first_step.sh || stop "no training in the image"
images rm "$made" >/dev/null
say "every line ran"

#!/usr/bin/env bash
# Runs every line of the Dockerfile without docker and without a registry of images, then trains in what it made.
#
#   tools/docker/run_in_bare_root.sh [NAME=VALUE...]       # build arguments, as SLIME_CUDA=0; 15 GB in build/docker
#
# mmdebstrap makes debian:12 of Debian's packages, nothing but the essential ones, apt and certificates. buildah executes the file in it.
# What else the root gets is what this machine's own clients need (own_settings in bare_root.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tools/docker/bare_root.sh
command -v buildah >/dev/null || stop "buildah is missing: apt-get install --no-install-recommends buildah"
folder=$PWD/build/docker
mkdir -p "$folder"
images() { buildah --root "$folder/images" --runroot "$folder/state" --storage-driver vfs "$@"; }

root_archive bookworm "$folder/debian12.tar" ca-certificates
rm -rf "$folder/own"
own_settings "$folder/own"
base=$(images from scratch)
images add -q "$base" "$folder/debian12.tar" / >/dev/null
images add -q "$base" "$folder/own" / >/dev/null
# A compiler cache knows libraries' headers by their path, and the language of warnings.
for name in SLIME_DEPS LANG LC_ALL LC_CTYPE LC_MESSAGES; do
  [[ -z ${CCACHE_DIR:-} || -z ${!name:-} ]] || images config --env "$name=${!name}" "$base"
done
images commit -q "$base" debian:12 >/dev/null
images rm "$base" >/dev/null

say "running the Dockerfile ${*:-}"
options=()
for setting in "$@"; do options+=(--build-arg "$setting"); done
[[ -z ${CCACHE_DIR:-} ]] || options+=(--volume "$CCACHE_DIR:/ccache")
images bud --isolation chroot --pull-never "${options[@]}" -t slime . 2>&1 | tee "$folder/build.log" | grep --line-buffered -v '^$' ||
  stop "a line failed; the log is $folder/build.log"

say "training in the image, without a network"
made=$(images from --pull-never slime)
root=$(images mount "$made")
say "the image has $(du -sm "$root" | cut -f1) MB"
mkdir -p "$root/work"
enter "$root" --unshare-net --chdir /work -- slime --version
enter "$root" --unshare-net --chdir /work -- bash /clone/tools/docker/first_step.sh || stop "no training in the image"
images rm "$made" >/dev/null
say "every line ran"

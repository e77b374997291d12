#!/usr/bin/env bash
# The GPU side in a bare Debian 12, up to its compiler: what SLIME_CUDA=1 installs, CMake's configuration, and these kernels.
#
#   tools/docker/kernel_in_bare_root.sh [KERNEL...]      # names of src/kernels/cuda/**/*.cu (default attend_decode); 6 GB in build/bare
#
# All kernels take hours of a core; run_in_bare_root.sh compiles them where SLIME_CUDA=0 is not said.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tools/docker/bare_root.sh
[[ $# -gt 0 ]] || set -- attend_decode
root=build/bare/kernel

# What the Dockerfile's first RUN line installs.
root_archive bookworm build/bare/bookworm.tar python3 python3-venv ca-certificates
rm -rf "$root"
mkdir -p "$root"
tar -xf build/bare/bookworm.tar -C "$root"
own_settings "$root"
cp /etc/resolv.conf "$root/etc/resolv.conf"
mkdir -p "$root/opt/slime" "$root/ccache"
tar -c --exclude=./build --exclude=./.deps --exclude=./.venv --exclude=./.git --exclude=./runs --exclude=./data . | tar -x -C "$root/opt/slime"

options=(--setenv SLIME_CUDA 1 --chdir /opt/slime)
[[ -z ${CCACHE_DIR:-} ]] || options+=(--bind "$CCACHE_DIR" /ccache)
begin=$SECONDS
enter "$root" "${options[@]}" -- ./dev setup
say "setup: $((SECONDS - begin)) s"
enter "$root" "${options[@]}" -- cmake --preset release -DSLIME_DEPS=/opt/slime/.deps -DSLIME_CUDA=ON >"$root.log" 2>&1 ||
  { tail -n 20 "$root.log"; stop "cmake failed"; }
say "configured"
for kernel in "$@"; do
  begin=$SECONDS
  enter "$root" "${options[@]}" -- ninja -C build/release "cuda/$kernel.o" >"$root.log" 2>&1 || { tail -n 20 "$root.log"; stop "$kernel failed"; }
  [[ -s $root/opt/slime/build/release/cuda/$kernel.o ]] || stop "$kernel left no object"
  say "$kernel: $((SECONDS - begin)) s"
done

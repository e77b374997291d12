#!/usr/bin/env bash
# Installs the wheel in a root that has python3 and nothing to compile with, and trains two steps there; says how long each took.
#
#   tools/docker/wheel_in_bare_root.sh [bookworm|trixie|noble...] [DIST]      # wheels of ./dev wheel in DIST (default dist)
#
# What the wheel requires comes from PyPI. Training has no network. An Ubuntu: bare_root.sh says what it takes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tools/docker/bare_root.sh
release=${1:-bookworm}
dist=$(realpath "${2:-dist}")
root=build/bare/$release

root_archive "$release" "$root.tar" python3 python3-venv ca-certificates
rm -rf "$root"
mkdir -p "$root"
tar -xf "$root.tar" -C "$root"
own_settings "$root"
cp /etc/resolv.conf "$root/etc/resolv.conf"

say "$(. "$root/etc/os-release"; echo "$PRETTY_NAME"), $(enter "$root" -- python3 --version), $(enter "$root" -- ldd --version | head -n 1)"
if enter "$root" -- bash -c 'command -v cc c++ gcc g++'; then stop "this root has a compiler"; fi
begin=$SECONDS
enter "$root" -- python3 -m venv /opt/slime
say "an empty environment: $((SECONDS - begin)) s"
begin=$SECONDS
enter "$root" --ro-bind "$dist" /dist -- \
  /opt/slime/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --find-links /dist slime-rl
say "pip install slime-rl: $((SECONDS - begin)) s; the environment has $(du -sm "$root/opt/slime" | cut -f1) MB"
enter "$root" --unshare-net -- bash /clone/tools/docker/first_step.sh

#!/usr/bin/env bash
# Proves that wheels are what their names say: every library that they need is in them, in the C library, or in a package that
# their metadata requires, and no symbol is newer than those of manylinux_2_34 (auditwheel's policy). Prints their sizes.
#
#   tools/build/wheel/audit.sh dist/slime_rl*.whl
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PATH=${SLIME_VENV:-.venv}/bin:$PATH

# Of packages that are required: nvidia-cuda-runtime and -cupti, and for the GPU side torch with NVIDIA's that it requires.
elsewhere=(--exclude 'libcudart.so.13' --exclude 'libcupti.so.13')

for wheel in "$@"; do
  auditwheel repair "$wheel" --plat manylinux_2_34_x86_64 --only-plat -z 1 "${elsewhere[@]}" -w "$scratch/repaired" >"$scratch/log" 2>&1 ||
    { cat "$scratch/log" >&2; exit 1; }
  # Nothing was copied into it from this machine, so what was built needs no repair.
  diff <(python3 -m zipfile -l "$wheel" | awk 'NR > 1 && $1 !~ /\/$/ {print $1}' | sort) \
    <(python3 -m zipfile -l "$scratch"/repaired/*.whl | awk 'NR > 1 && $1 !~ /\/$/ {print $1}' | sort) >"$scratch/log" ||
    { echo "audit: libraries of this machine are missing in $wheel:" >&2; cat "$scratch/log" >&2; exit 1; }
  rm -rf "$scratch/repaired"
  python3 - "$wheel" <<'TEXT'
import sys, zipfile, os
file = sys.argv[1]
with zipfile.ZipFile(file) as archive:
    entries = archive.infolist()
print(f"{os.path.basename(file)}: manylinux_2_34, {os.path.getsize(file) / 1e6:.1f} MB, installed {sum(e.file_size for e in entries) / 1e6:.1f} MB")
for entry in sorted(entries, key=lambda e: -e.compress_size)[:8]:
    print(f"  {entry.compress_size / 1e6:8.2f} MB  {entry.file_size / 1e6:8.2f} MB installed  {entry.filename}")
TEXT
done

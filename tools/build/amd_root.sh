#!/usr/bin/env bash
# amd_root.sh WHEEL ROOT: a folder as clang wants it to compile for AMD's GPUs (--rocm-path=ROOT), from triton's wheel. Why each file
# is there: docs/decisions/0158-one-source-for-gpus.md.
set -euo pipefail
[[ $# == 2 ]] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
wheel=$1 root=$2
clang=${SLIME_CLANG:-clang-22}
mkdir -p "$root/amdgcn/bitcode" "$root/share/hip"
python3 - "$wheel" "$root" <<'PYTHON'
import sys, zipfile
from pathlib import Path

PREFIX = "triton/backends/amd/"
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in wheel.namelist():
        if name.startswith(PREFIX + "include/hip/") and not name.endswith("/"):
            to = Path(sys.argv[2]) / name.removeprefix(PREFIX)
        elif name in (PREFIX + "lib/ocml.bc", PREFIX + "lib/ockl.bc"):
            to = Path(sys.argv[2]) / "amdgcn/bitcode" / Path(name).name
        else:
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(wheel.read(name))
PYTHON
printf 'HIP_VERSION_MAJOR=7\nHIP_VERSION_MINOR=1\nHIP_VERSION_PATCH=0\n' >"$root/share/hip/version"

# bitcode FILE: C on the standard input.
bitcode() { "$clang" --target=amdgcn-amd-amdhsa -nogpulib -x c -O1 -emit-llvm -c -o "$root/amdgcn/bitcode/$1.bc" -; }
# switch NAME TYPE VALUE: a constant of the device library
switch() {
  printf 'extern const __attribute__((address_space(4), visibility("protected"))) %s %s;\n' "$2" "$1"
  printf 'const __attribute__((address_space(4))) %s %s = %s;\n' "$2" "$1" "$3"
}
for value in 0 1; do
  word=$([[ $value == 1 ]] && echo on || echo off)
  for name in daz_opt:daz_opt unsafe_math:unsafe_math_opt finite_only:finite_only_opt correctly_rounded_sqrt:correctly_rounded_sqrt32; do
    switch "__oclc_${name#*:}" char $value | bitcode "oclc_${name%:*}_$word"
  done
  { switch __oclc_wavefrontsize64 char $value; switch __oclc_wavefrontsize_log2 int $((5 + value)); } |
    bitcode "oclc_wavefrontsize64_$word"
done
switch __oclc_ISA_version int 9402 | bitcode oclc_isa_version_942
switch __oclc_ISA_version int 9500 | bitcode oclc_isa_version_950
switch __oclc_ABI_version int 600 | bitcode oclc_abi_version_600
bitcode opencl </dev/null

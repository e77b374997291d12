# shellcheck shell=bash
# Sourced by ./dev: kernels for AMD's GPUs, compiled and checked without one (docs/decisions/0158-one-source-for-gpus.md).

HIP_PROCESSORS=(gfx942 gfx950)  # those that tools/build/amd_root.sh has constants of

# What ./dev hip compiles for: SLIME_HIP_ARCHITECTURES, or all.
hip_processors() {
  local name names=()
  IFS=, read -ra names <<<"${SLIME_HIP_ARCHITECTURES:-}"
  [[ ${#names[@]} -gt 0 ]] || names=("${HIP_PROCESSORS[@]}")
  for name in "${names[@]}"; do
    [[ " ${HIP_PROCESSORS[*]} " == *" $name "* ]] ||
      stop "SLIME_HIP_ARCHITECTURES: no kernels for \"$name\"; there are: $(IFS=,; echo "${HIP_PROCESSORS[*]}")"
  done
  printf '%s\n' "${names[@]}"
}

has_amd_compiler() { command -v clang++-22 ld.lld-22 llvm-readelf-22 >/dev/null; }
has_amd_root() { [[ -e $SLIME_DEPS/amd/amdgcn/bitcode/opencl.bc ]]; }

require_amd_compiler() {
  has_amd_compiler && return
  [[ -z ${SLIME_SKIP_APT:-} ]] || stop "clang-22, lld-22 and llvm-22 are missing, and SLIME_SKIP_APT is set"
  say "installing clang-22, lld-22 and llvm-22"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends clang-22 lld-22 llvm-22 </dev/null >"$LOG_DIR/apt.log" 2>&1 ||
    stop "apt-get has no clang-22, or failed; the log is $LOG_DIR/apt.log"
}

# Headers and bitcode of triton's wheel (286 MB, of which 2 are kept).
require_amd_root() {
  has_amd_root && return
  mkdir -p "$SLIME_DEPS"
  exec 9>"$SLIME_DEPS/.lock"
  flock 9
  if ! has_amd_root; then
    make_venv
    download_wheels hip
    rm -rf "$SLIME_DEPS/amd" "$SLIME_DEPS/amd.partial"
    tools/build/amd_root.sh "$SLIME_DEPS"/wheels/triton-*.whl "$SLIME_DEPS/amd.partial"
    mv "$SLIME_DEPS/amd.partial" "$SLIME_DEPS/amd"
    rm -rf "$SLIME_DEPS/wheels"
  fi
  exec 9>&-
}

# The linker refuses undefined symbols.
hip() {
  local begin=$SECONDS kernels kernel names processors
  names=$(hip_processors)
  mapfile -t processors <<<"$names"
  require_amd_compiler
  require_amd_root
  mapfile -t kernels < <(sed -n '/^set(slime_portable_kernels/,/)/p' cmake/portable_kernels.cmake | grep -oE '[a-z0-9_]+/[a-z0-9_]+')
  rm -rf build/hip
  mkdir -p build/hip
  say "compiling ${#kernels[@]} files for ${processors[*]}"
  # shellcheck disable=SC2016
  for kernel in "${kernels[@]}"; do printf "$kernel %s\n" "${processors[@]}"; done |
    xargs -P "$(nproc)" -L 1 bash -c 'clang++-22 -x hip --offload-arch="$1" --cuda-device-only --no-gpu-bundle-output \
      --rocm-path="$SLIME_DEPS/amd" -std=c++20 -O3 -w -Isrc -c "src/kernels/cuda/$0.cu" -o "build/hip/$(basename "$0").$1.co"' ||
    stop "a kernel does not compile for AMD's GPUs"
  python3 tools/build/check_amd_code.py "$@" tools/build/amd_spilled_registers.tsv build/hip/*.co || stop "the code for AMD's GPUs is not as it should be"
  say "code objects are in build/hip ($((SECONDS - begin)) s)"
}

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

HIP_TOOLS=(clang++-22 clang-offload-bundler-22 ld.lld-22 llvm-readelf-22)
HIP_PACKAGES=(clang-22 clang-tools-22 lld-22 llvm-22)

has_amd_compiler() {
  local tool
  [[ -z ${SLIME_HIP_ROCM:-} ]] || return 0
  for tool in "${HIP_TOOLS[@]}"; do command -v "$tool" >/dev/null || return 1; done
}
has_amd_root() { [[ -n ${SLIME_HIP_ROCM:-} || -e $SLIME_DEPS/amd/amdgcn/bitcode/opencl.bc ]]; }

# The status tells .ci/run that nothing was found wrong.
HIP_NO_TOOLS=3
no_hip_tools() {
  printf 'dev: %s\n' "$*" >&2
  exit $HIP_NO_TOOLS
}

require_amd_compiler() {
  has_amd_compiler && return
  [[ -z ${SLIME_SKIP_APT:-} ]] || no_hip_tools "${HIP_PACKAGES[*]} are missing, and SLIME_SKIP_APT is set"
  say "installing ${HIP_PACKAGES[*]}"
  local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${HIP_PACKAGES[@]}")
  (as_root apt-get update -qq && as_root "${install[@]}" </dev/null) >"$LOG_DIR/apt.log" 2>&1 ||
    no_hip_tools "apt-get has no ${HIP_PACKAGES[*]} here; the log is $LOG_DIR/apt.log"
}

# Headers and bitcode of triton's wheel (286 MB, of which 2 are kept).
require_amd_root() {
  has_amd_root && return
  mkdir -p "$SLIME_DEPS"
  exec 9>"$SLIME_DEPS/.lock"
  flock 9
  if ! has_amd_root; then
    make_venv
    (download_wheels hip) || no_hip_tools "the wheel with HIP's headers cannot be downloaded here"
    rm -rf "$SLIME_DEPS/amd" "$SLIME_DEPS/amd.partial"
    tools/build/amd_root.sh "$SLIME_DEPS"/wheels/triton-*.whl "$SLIME_DEPS/amd.partial"
    mv "$SLIME_DEPS/amd.partial" "$SLIME_DEPS/amd"
    rm -rf "$SLIME_DEPS/wheels"
  fi
  exec 9>&-
}

# Makes build/release/libslime_hip.so and checks it and the machine code in it. The linker of machine code refuses undefined symbols.
# Another compiler spills other registers than the table has, and another LibTorch has other functions inline.
hip() {
  local begin=$SECONDS library=build/release/libslime_hip.so table=tools/build/amd_spilled_registers.tsv names torch=$SLIME_DEPS/torch/lib
  names=$(hip_processors)
  require_amd_compiler
  require_packages  # python3-venv, by which the wheel comes
  require_amd_root
  build release slime_hip
  if [[ -n ${SLIME_HIP_ROCM:-} ]]; then
    export SLIME_LLVM=$SLIME_HIP_ROCM/llvm/bin
    table=none
  fi
  python3 tools/build/check_amd_code.py "$@" $table build/release/hip/*.co || stop "the code for AMD's GPUs is not as it should be"
  if [[ -n ${SLIME_HIP_TORCH:-} ]]; then
    say "$library has code for ${names//$'\n'/, } ($((SECONDS - begin)) s)"
    return
  fi
  python3 tools/build/check_hip_library.py $library tools/build/hip_library_needs.txt "$torch"/{libc10,libtorch_cpu}.so ||
    stop "$library lacks what no machine with ROCm has, or cannot be loaded"
  say "$library has code for ${names//$'\n'/, } ($((SECONDS - begin)) s). It is for checks: what needs LibTorch's ROCm side was compiled
    against stubs of its headers. SLIME_HIP_TORCH=FOLDER makes one that can run (docs/rocm.md)"
}

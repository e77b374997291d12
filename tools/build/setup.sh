# shellcheck shell=bash
# Sourced by ./dev: what the build needs, installed when it is missing. Debian's packages through apt, LibTorch from its
# wheel into $SLIME_DEPS, Python tools into $SLIME_VENV. Each step is skipped in a few milliseconds once it is done.

TORCH_VERSION=2.11.0
XGRAMMAR_VERSION=0.2.9

# "as_root COMMAND...": runs it as root when that works, otherwise prints what to type and stops.
as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
    sudo "$@"
  else
    stop "packages are missing and this user may not install them. Type, as root:
    $*
  then run ./dev again."
  fi
}

is_installed() { [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# The distribution's Boost that is 1.81 or later and has URL: Debian 12 has 1.81, Ubuntu 24.04 1.83, Debian 13 1.83.
boost_minor() {
  local minor
  for minor in 81 83 84 88 90; do is_installed libboost-url1.$minor-dev && { echo $minor; return; }; done
  for minor in 81 83 84 88 90; do
    [[ $(apt-cache policy libboost-url1.$minor-dev 2>/dev/null) == *"Candidate: "[0-9]* ]] && { echo $minor; return; }
  done
  return 1
}

require_packages() {
  [[ -z ${SLIME_SKIP_APT:-} ]] || return 0
  if ! command -v apt-get >/dev/null; then
    say "no apt here: cmake >= 3.25, ninja, g++ >= 12, Boost >= 1.81 and the libraries of cmake/dependencies.cmake must be there"
    return
  fi
  local packages=(g++ cmake ninja-build ccache mold git ca-certificates xz-utils pkg-config python3 python3-venv
    libcli11-dev libyaml-cpp-dev libssl-dev libpcre2-dev libedit-dev libgtest-dev libgmock-dev libexpected-dev bubblewrap)
  local minor missing=() name
  for name in "${packages[@]}"; do is_installed "$name" || missing+=("$name"); done
  if ! minor=$(boost_minor); then
    say "reading the package lists"
    as_root apt-get update -qq
    minor=$(boost_minor) || stop "this release has no Boost 1.81 or later ($(. /etc/os-release; echo "$PRETTY_NAME")).
  Ubuntu 22.04 stops at 1.74 and CMake 3.22. What works: Debian 12 or later, Ubuntu 24.04 or later, a container of
  either; or install Boost 1.81 and CMake 3.25 yourself and run  SLIME_SKIP_APT=1 CMAKE_PREFIX_PATH=/your/prefix ./dev build"
  fi
  for name in libboost1.$minor-dev libboost-json1.$minor-dev libboost-url1.$minor-dev; do
    is_installed "$name" || missing+=("$name")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  say "installing ${#missing[@]} packages: ${missing[*]}"
  local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}")
  "${install[@]}" --dry-run >/dev/null 2>&1 || as_root apt-get update -qq
  as_root "${install[@]}" </dev/null >"$LOG_DIR/apt.log" 2>&1 || { tail -n 20 "$LOG_DIR/apt.log"; stop "apt-get failed; the log is $LOG_DIR/apt.log"; }
}

has_libtorch() {
  local torch=$SLIME_DEPS/torch
  [[ -e $torch/lib/libtorch_cpu.so && -e $torch/lib/libc10.so && -e $torch/lib/libgomp.so.1 ]] &&
    [[ -e $SLIME_DEPS/nvidia/cu13/lib/libcudart.so.13 && -e $SLIME_DEPS/nvidia/cu13/lib/libcupti.so.13 ]] &&
    grep -qs "TORCH_VERSION_MINOR ${TORCH_VERSION:2:2}$" "$torch/include/torch/headeronly/version.h"
}

# "download_wheels FILE": the pinned wheels of tools/build/requirements/FILE.txt into $SLIME_DEPS/wheels, one at a time: what is
# complete is kept when a later download breaks off.
download_wheels() {
  local line name attempt platform platforms=()
  for platform in manylinux_2_28 manylinux_2_27 manylinux_2_25 manylinux_2_18 manylinux_2_17 manylinux2014 manylinux2010; do
    platforms+=(--platform "${platform}_x86_64")
  done
  mkdir -p "$SLIME_DEPS/wheels"
  while read -r line; do
    name=${line%%==*}
    compgen -G "$SLIME_DEPS/wheels/${name//-/_}-[0-9]*.whl" >/dev/null && continue
    printf '%s\n' "$line" >"$SLIME_DEPS/wheels/$name.txt"
    say "downloading ${line%% *}"
    for attempt in 1 2 3; do
      "$SLIME_VENV/bin/pip" download --quiet --no-deps --require-hashes --only-binary=:all: --implementation cp \
        --python-version 3.11 --abi cp311 --abi none "${platforms[@]}" --no-cache-dir -r "$SLIME_DEPS/wheels/$name.txt" \
        -d "$SLIME_DEPS/wheels" </dev/null && break
      [[ $attempt -lt 3 ]] || stop "could not download $name; run ./dev setup again when the network is back"
      say "the download broke off, trying again"
    done
  done < <(grep '^[a-z]' "tools/build/requirements/$1.txt")
}

keep_licenses() { mkdir -p "$SLIME_DEPS/licenses" && cp -r "$SLIME_DEPS/partial/licenses/." "$SLIME_DEPS/licenses/"; }

# A folder of dependencies that is older than this step has no licences: the wheels are fetched again for them alone.
require_licenses() {
  local kind
  for kind in libtorch arrow; do
    compgen -G "$SLIME_DEPS/licenses/$([[ $kind == arrow ]] && echo pyarrow || echo torch)-*/LICENSE*" >/dev/null && continue
    exec 9>"$SLIME_DEPS/.lock"
    flock 9
    make_venv
    download_wheels $kind
    python3 tools/build/unpack_wheels.py $kind "$SLIME_DEPS/wheels" "$SLIME_DEPS/partial"
    keep_licenses
    rm -rf "$SLIME_DEPS/partial" "$SLIME_DEPS/wheels"
    exec 9>&-
  done
}

# Two clones may share $SLIME_DEPS: the first to come downloads, the second waits for the lock.
require_libtorch() {
  has_libtorch && return
  mkdir -p "$SLIME_DEPS/wheels"
  exec 9>"$SLIME_DEPS/.lock"
  flock 9
  if ! has_libtorch; then
    make_venv
    download_wheels libtorch
    say "unpacking LibTorch $TORCH_VERSION into $SLIME_DEPS"
    rm -rf "$SLIME_DEPS/partial"
    python3 tools/build/unpack_wheels.py libtorch "$SLIME_DEPS/wheels" "$SLIME_DEPS/partial"
    rm -rf "$SLIME_DEPS/torch" "$SLIME_DEPS/nvidia"
    mv "$SLIME_DEPS/partial/nvidia" "$SLIME_DEPS/partial/torch" "$SLIME_DEPS/"
    keep_licenses
    rm -rf "$SLIME_DEPS/partial" "$SLIME_DEPS/wheels"
    has_libtorch || stop "LibTorch in $SLIME_DEPS is not complete; delete the folder and run ./dev setup"
  fi
  exec 9>&-
}

has_arrow() {
  compgen -G "$SLIME_DEPS/pyarrow/libparquet.so.*" >/dev/null && compgen -G "$SLIME_DEPS/pyarrow/libarrow.so.*" >/dev/null &&
    [[ -e $SLIME_DEPS/pyarrow/include/parquet/arrow/reader.h ]]
}

require_arrow() {
  has_arrow && return
  mkdir -p "$SLIME_DEPS/wheels"
  exec 9>"$SLIME_DEPS/.lock"
  flock 9
  if ! has_arrow; then
    make_venv
    download_wheels arrow
    say "unpacking Arrow into $SLIME_DEPS"
    rm -rf "$SLIME_DEPS/partial" "$SLIME_DEPS/pyarrow"
    python3 tools/build/unpack_wheels.py arrow "$SLIME_DEPS/wheels" "$SLIME_DEPS/partial"
    mv "$SLIME_DEPS/partial/pyarrow" "$SLIME_DEPS/"
    keep_licenses
    rm -rf "$SLIME_DEPS/partial" "$SLIME_DEPS/wheels"
    has_arrow || stop "Arrow in $SLIME_DEPS is not complete; delete $SLIME_DEPS/pyarrow and run ./dev setup"
  fi
  exec 9>&-
}

# The sources of the grammar engine, without its Python bindings.
has_xgrammar() { [[ -e $SLIME_DEPS/xgrammar/include/xgrammar/xgrammar.h ]] &&
  grep -qs "^Version: $XGRAMMAR_VERSION$" "$SLIME_DEPS/xgrammar/PKG-INFO"; }

require_xgrammar() {
  has_xgrammar && return
  mkdir -p "$SLIME_DEPS"
  exec 9>"$SLIME_DEPS/.lock"
  flock 9
  if ! has_xgrammar; then
    make_venv
    say "downloading the sources of xgrammar $XGRAMMAR_VERSION into $SLIME_DEPS"
    rm -rf "$SLIME_DEPS/partial"
    "$SLIME_VENV/bin/python" tools/build/fetch_source.py xgrammar "$SLIME_DEPS/partial" ||
      stop "could not download xgrammar; run ./dev setup again when the network is back"
    rm -rf "$SLIME_DEPS/xgrammar"
    mv "$SLIME_DEPS/partial/xgrammar" "$SLIME_DEPS/"
    rm -rf "$SLIME_DEPS/partial"
    has_xgrammar || stop "xgrammar in $SLIME_DEPS is not complete; delete $SLIME_DEPS/xgrammar and run ./dev setup"
  fi
  exec 9>&-
}

# The GPU side is built where SLIME_CUDA=1 says so or a GPU is there. What compiles it is needed for building, the
# libraries of cuda_run.txt (2.5 GB) only where a GPU is.
wants_cuda() { [[ ${SLIME_CUDA:-} == 1 || ( -z ${SLIME_CUDA:-} && -e /dev/nvidiactl ) ]]; }

has_cuda_compiler() { [[ -x $SLIME_DEPS/cuda/bin/nvcc && -e $SLIME_DEPS/cuda/flashinfer/include/flashinfer/page.cuh \
  && -e $SLIME_DEPS/cuda/cudnn/include/cudnn_frontend.h ]]; }
has_cuda_libraries() { [[ -e $SLIME_DEPS/torch/lib/libtorch_cuda.so && -e $SLIME_DEPS/nvidia/cu13/lib/libcublasLt.so.13 ]]; }

# "require_cuda_part build|run TEST": fetches and unpacks it unless TEST holds.
require_cuda_part() {
  "$2" && return
  exec 9>"$SLIME_DEPS/.lock"
  flock 9
  if ! "$2"; then
    make_venv
    download_wheels "cuda_$1"
    say "unpacking CUDA ($1) into $SLIME_DEPS"
    if [[ $1 == build ]]; then
      rm -rf "$SLIME_DEPS/cuda.partial" "$SLIME_DEPS/cuda"
      python3 tools/build/unpack_cuda.py build "$SLIME_DEPS/wheels" "$SLIME_DEPS/cuda.partial"
      mv "$SLIME_DEPS/cuda.partial" "$SLIME_DEPS/cuda"
    else
      python3 tools/build/unpack_cuda.py run "$SLIME_DEPS/wheels" "$SLIME_DEPS"
    fi
    rm -rf "$SLIME_DEPS/wheels"
    "$2" || stop "CUDA ($1) in $SLIME_DEPS is not complete; run ./dev setup again"
  fi
  exec 9>&-
}

require_cuda() {
  wants_cuda || return 0
  require_cuda_part build has_cuda_compiler
  [[ ! -e /dev/nvidiactl ]] || require_cuda_part run has_cuda_libraries
}

# "architecture_of 9.0" is what nvcc calls a GPU of this compute capability: 90a, whose code uses what 9.0 alone has.
architecture_of() {
  case $1 in
    8.0 | 8.6 | 8.9 | 12.0) echo "${1/./}" ;;
    9.0 | 10.0) echo "${1/./}a" ;;
    *) return 1 ;;
  esac
}

# What the GPU side is compiled for: SLIME_CUDA_ARCHITECTURES, or what the driver says of this machine's GPUs. Nothing where
# neither is: CMake's own choice stays.
cuda_architectures() {
  local capability name names=()
  if [[ -n ${SLIME_CUDA_ARCHITECTURES:-} ]]; then
    echo "$SLIME_CUDA_ARCHITECTURES"
    return
  fi
  command -v nvidia-smi >/dev/null || return 0
  while read -r capability; do
    name=$(architecture_of "$capability") ||
      stop "this machine's GPU has compute capability $capability, for which there are no kernels: docs/gpu.md lists those that there are.
  What works:  SLIME_CUDA=0 ./dev build  (without the GPU side), or SLIME_CUDA_ARCHITECTURES=... to try a near one"
    names+=("$name")
  done < <(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep '^[0-9]' | sort -uV)
  (IFS=,; echo "${names[*]}")
}

make_venv() {
  [[ -x $SLIME_VENV/bin/pip ]] || python3 -m venv "$SLIME_VENV" || stop "python3 -m venv failed (package python3-venv)"
}

# "require_python tests": the pinned packages of tools/build/requirements/tests.txt are in the virtual environment.
require_python() {
  local file=tools/build/requirements/$1.txt
  make_venv
  cmp -s "$file" "$SLIME_VENV/$1.installed" && return
  say "installing Python packages of $file"
  "$SLIME_VENV/bin/pip" install --quiet --disable-pip-version-check -r "$file"
  cp "$file" "$SLIME_VENV/$1.installed"
}

# Tests of the trainer's Python functions want an interpreter with torch. Without one they are skipped, and say so.
require_torch_python() {
  [[ -z ${SLIME_SKIP_APT:-} && $(id -u) == 0 ]] && command -v apt-get >/dev/null || return 0
  ! is_installed python3-torch || return 0
  say "installing python3-torch"
  local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-torch)
  "${install[@]}" --dry-run >/dev/null 2>&1 || apt-get update -qq
  "${install[@]}" </dev/null >"$LOG_DIR/apt.log" 2>&1 || say "python3-torch cannot be installed; the log is $LOG_DIR/apt.log"
}

setup() {
  [[ $(uname -s)-$(uname -m) == Linux-x86_64 ]] || stop "LibTorch's wheel is pinned for Linux on x86-64; this is $(uname -s) on $(uname -m)"
  require_packages
  require_libtorch
  require_arrow
  require_xgrammar
  require_cuda
}

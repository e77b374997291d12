#!/usr/bin/env bash
# GRPO with Qwen3-4B, with the settings of the original's script of this name. There is no HIP build: AMD GPUs are not used. On a machine
# that has some it stops, unless DEVICE says cpu or cuda.
#
#   MODEL_DIR=... DATA_DIR=... scripts/run-qwen3-4B-amd.sh [FLAGS...]
set -euo pipefail
if [[ -z ${DEVICE:-} && -e ${KFD:-/dev/kfd} ]]; then
  echo "$0: this machine has AMD GPUs, and slime has kernels for NVIDIA GPUs and the CPU alone; DEVICE=cpu $0 trains on the CPU" >&2
  exit 2
fi
echo "$0: AMD GPUs are not used (no HIP build); the device is ${DEVICE:-an NVIDIA GPU where one is visible, else the CPU}" >&2
export MODELS=${MODEL_DIR:-${MODELS:-data/models}} DATA=${DATA_DIR:-${DATA:-data}}
exec "$(dirname "$0")/run-grpo.sh" qwen3-4B --rollout-temperature 0.8 "$@"

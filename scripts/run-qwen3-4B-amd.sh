#!/usr/bin/env bash
# GRPO with Qwen3-4B, with the settings of the original's script of this name. Where AMD's driver is, it trains with --device hip (ROCm
# preview: docs/rocm.md), elsewhere on what --device auto finds; DEVICE says otherwise.
#
#   MODEL_DIR=... DATA_DIR=... scripts/run-qwen3-4B-amd.sh [FLAGS...]
set -euo pipefail
if [[ -z ${DEVICE:-} && -e ${KFD:-/dev/kfd} ]]; then
  export DEVICE=hip
  echo "$0: ROCm preview: builds for gfx942 and gfx950, kernels checked without hardware, not yet run on it; slime check --device hip first" >&2
elif [[ -z ${DEVICE:-} ]]; then
  echo "$0: there is no AMD GPU; the device is an NVIDIA GPU where one is visible, else the CPU" >&2
fi
export MODELS=${MODEL_DIR:-${MODELS:-data/models}} DATA=${DATA_DIR:-${DATA:-data}}
exec "$(dirname "$0")/run-grpo.sh" qwen3-4B --rollout-temperature 0.8 "$@"

#!/usr/bin/env bash
# Supervised training on conversations.
#
#   scripts/run-sft.sh MODEL [FLAGS...]     MODEL is a file of scripts/models, FLAGS at the end win; --dry-run only checks
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$ROOT/scripts/launch.sh" "$@"

CKPT_ARGS=(
  --hf-checkpoint "$MODELS/$MODEL_NAME"
  --save "$RUNS/$MODEL_NAME-sft"
  --save-interval 20
)

SFT_ARGS=(
  --rollout-function-path slime.rollout.sft_rollout.generate_rollout
  --prompt-data "$DATA/openhermes2_5.parquet"
  --input-key messages
  --rollout-shuffle
  --num-epoch 3
  --rollout-batch-size 128
  --global-batch-size 128
  --loss-type sft_loss
  --calculate-per-token-loss
  --debug-train-only
)

PERF_ARGS=(
  --device "$DEVICE"
  --actor-num-nodes 1
  --actor-num-gpus-per-node 1
  --use-dynamic-batch-size
  --max-tokens-per-gpu 9216
  --recompute-granularity full
)

OPTIMIZER_ARGS=(
  --optimizer adam
  --lr 1e-5
  --lr-decay-style cosine
  --min-lr 1e-6
  --lr-warmup-fraction 0.1
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.95
)

WANDB_ARGS=(
  # --use-wandb
  # --wandb-project slime
  # --wandb-group "$MODEL_NAME-sft"
)

exec python3 "$ROOT"/train.py \
  "${MODEL_ARGS[@]}" \
  "${CKPT_ARGS[@]}" \
  "${SFT_ARGS[@]}" \
  "${PERF_ARGS[@]}" \
  "${OPTIMIZER_ARGS[@]}" \
  "${WANDB_ARGS[@]}" \
  "${FLAGS[@]}"

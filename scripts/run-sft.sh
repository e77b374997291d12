#!/usr/bin/env bash
# Supervised training on conversations.
#
#   scripts/run-sft.sh MODEL [FLAGS...]     MODEL is a file of scripts/models, FLAGS at the end win; --dry-run only checks
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh" "$@"

ROLLOUT_ARGS=(
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

EVAL_ARGS=()
GRPO_ARGS=()
SGLANG_ARGS=()

launch train.py

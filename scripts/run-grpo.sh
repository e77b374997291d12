#!/usr/bin/env bash
# GRPO on math problems: groups of 8 answers, the reward is a rule.
#
#   scripts/run-grpo.sh MODEL [FLAGS...]     MODEL is a file of scripts/models, FLAGS at the end win; --dry-run only checks
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$ROOT/scripts/launch.sh" "$@"

CKPT_ARGS=(
  --hf-checkpoint "$MODELS/$MODEL_NAME"
  --save "$RUNS/$MODEL_NAME-grpo"
  --save-interval 20
)

ROLLOUT_ARGS=(
  --prompt-data "$DATA/dapo-math-17k/dapo-math-17k.jsonl"
  --input-key prompt
  --label-key label
  --apply-chat-template
  --rollout-shuffle
  --rm-type deepscaler
  --num-rollout 3000
  --rollout-batch-size 32
  --n-samples-per-prompt 8
  --rollout-max-response-len 8192
  --rollout-temperature 1
  --global-batch-size 256
  --balance-data
)

EVAL_ARGS=(
  --eval-interval 20
  --eval-prompt-data aime "$DATA/aime-2024/aime-2024.jsonl"
  --n-samples-per-eval-prompt 16
  --eval-max-response-len 16384
  --eval-top-p 1
)

PERF_ARGS=(
  --device "$DEVICE"
  --actor-num-nodes 1
  --actor-num-gpus-per-node 1
  --use-dynamic-batch-size
  --max-tokens-per-gpu 9216
  --recompute-granularity full
)

GRPO_ARGS=(
  --advantage-estimator grpo
  --use-kl-loss
  --kl-loss-coef 0.00
  --kl-loss-type low_var_kl
  --entropy-coef 0.00
  --eps-clip 0.2
  --eps-clip-high 0.28
)

OPTIMIZER_ARGS=(
  --optimizer adam
  --lr 1e-6
  --lr-decay-style constant
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.98
)

SGLANG_ARGS=(
  --sglang-server-concurrency 256
)

WANDB_ARGS=(
  # --use-wandb
  # --wandb-project slime
  # --wandb-group "$MODEL_NAME-grpo"
)

exec python3 "$ROOT"/train.py \
  "${MODEL_ARGS[@]}" \
  "${CKPT_ARGS[@]}" \
  "${ROLLOUT_ARGS[@]}" \
  "${EVAL_ARGS[@]}" \
  "${PERF_ARGS[@]}" \
  "${GRPO_ARGS[@]}" \
  "${OPTIMIZER_ARGS[@]}" \
  "${SGLANG_ARGS[@]}" \
  "${WANDB_ARGS[@]}" \
  "${FLAGS[@]}"

#!/usr/bin/env bash
# Conversations with tools: GENERATE draws each answer in as many turns as it likes, REWARD scores it. Both are a
# Python file or package.module.function of yours (docs/plugins.md); flags that only they know, as --max-turns, are
# attributes of their `args`.
#
#   scripts/run-multi-turn.sh MODEL [FLAGS...]     MODEL is a file of scripts/models, FLAGS at the end win; --dry-run only checks
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$ROOT/scripts/launch.sh" "$@"

CKPT_ARGS=(
  --hf-checkpoint "$MODELS/$MODEL_NAME"
  --save "$RUNS/$MODEL_NAME-multi-turn"
  --save-interval 20
)

GENERATE=${GENERATE:?a file of yours, generate.py, or package.module.function}
REWARD=${REWARD:?a file of yours, reward.py, or package.module.function}

ROLLOUT_ARGS=(
  --prompt-data "$DATA/dapo-math-17k/dapo-math-17k.jsonl"
  --input-key prompt
  --label-key label
  --apply-chat-template
  --rollout-shuffle
  --custom-generate-function-path "$GENERATE"
  --custom-rm-path "$REWARD"
  --max-turns 8
  --num-rollout 3000
  --rollout-batch-size 32
  --n-samples-per-prompt 8
  --rollout-max-response-len 8192
  --rollout-temperature 1
  --global-batch-size 256
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
  # --wandb-group "$MODEL_NAME-multi-turn"
)

exec python3 "$ROOT"/train.py \
  "${MODEL_ARGS[@]}" \
  "${CKPT_ARGS[@]}" \
  "${ROLLOUT_ARGS[@]}" \
  "${PERF_ARGS[@]}" \
  "${GRPO_ARGS[@]}" \
  "${OPTIMIZER_ARGS[@]}" \
  "${SGLANG_ARGS[@]}" \
  "${WANDB_ARGS[@]}" \
  "${FLAGS[@]}"

#!/usr/bin/env bash
# Conversations with tools: GENERATE draws each answer in as many turns as it likes, REWARD scores it. Both are a
# Python file or package.module.function of yours (docs/plugins.md); flags that only they know, as --max-turns, are
# attributes of their `args`.
#
#   scripts/run-multi-turn.sh MODEL [FLAGS...]     MODEL is a file of scripts/models, FLAGS at the end win; --dry-run only checks
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh" "$@"

GENERATE=${GENERATE:?a file of yours, generate.py, or package.module.function}
REWARD=${REWARD:?a file of yours, reward.py, or package.module.function}

ROLLOUT_ARGS=(
  "${GROUP_ARGS[@]}"
  --apply-chat-template
  --custom-generate-function-path "$GENERATE"
  --custom-rm-path "$REWARD"
  --max-turns 8
)

EVAL_ARGS=()

GRPO_ARGS+=(
  --use-kl-loss
  --kl-loss-coef 0.00
  --kl-loss-type low_var_kl
  --entropy-coef 0.00
  --eps-clip 0.2
  --eps-clip-high 0.28
)

launch train.py

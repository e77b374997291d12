#!/usr/bin/env bash
# GRPO on math problems: groups of 8 answers, the reward is a rule.
#
#   scripts/run-grpo.sh MODEL [FLAGS...]     MODEL is a file of scripts/models, FLAGS at the end win; --dry-run only checks
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh" "$@"

ROLLOUT_ARGS+=(--balance-data)

GRPO_ARGS+=(
  --use-kl-loss
  --kl-loss-coef 0.00
  --kl-loss-type low_var_kl
  --entropy-coef 0.00
  --eps-clip 0.2
  --eps-clip-high 0.28
)

launch train.py

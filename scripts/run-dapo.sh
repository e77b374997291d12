#!/usr/bin/env bash
# DAPO: groups whose answers are all right or all wrong are drawn again, and long answers cost.
#
#   scripts/run-dapo.sh MODEL [FLAGS...]     MODEL is a file of scripts/models, FLAGS at the end win; --dry-run only checks
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh" "$@"

ROLLOUT_ARGS=(
  "${GROUP_ARGS[@]}"
  --apply-chat-template
  --rm-type dapo
  --reward-key score
  --over-sampling-batch-size 64
  --dynamic-sampling-filter-path slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std
  --overlong-buffer-len 2048
)

GRPO_ARGS+=(
  --eps-clip 0.2
  --eps-clip-high 0.28
  --calculate-per-token-loss
)

launch train.py

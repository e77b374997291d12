#!/usr/bin/env bash
# On-policy distillation: every token of an answer is pulled towards a larger model, TEACHER (a folder of $MODELS).
#
#   scripts/run-opd.sh MODEL [FLAGS...]     MODEL is a file of scripts/models, FLAGS at the end win; --dry-run only checks
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh" "$@"

TEACHER=${TEACHER:-Qwen3-32B}

GRPO_ARGS+=(
  --use-opd
  --opd-type megatron
  --opd-kl-coef 1.0
  --opd-teacher-load "$MODELS/$TEACHER"
)

launch train.py

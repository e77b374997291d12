#!/usr/bin/env bash
# Generation concurrent with training: answers are up to two updates old, and the loss corrects for it.
#
#   scripts/run-async.sh MODEL [FLAGS...]     MODEL is a file of scripts/models, FLAGS at the end win; --dry-run only checks
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh" "$@"

GRPO_ARGS+=(
  --eps-clip 0.2
  --eps-clip-high 0.28
  --use-tis
  --tis-clip 2.0
)

SGLANG_ARGS+=(--max-staleness 2)

launch train_async.py

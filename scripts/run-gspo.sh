#!/usr/bin/env bash
# GSPO: ratios of whole answers, the form that models with experts are trained in.
#
#   scripts/run-gspo.sh MODEL [FLAGS...]     MODEL is a file of scripts/models, FLAGS at the end win; --dry-run only checks
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh" "$@"

ROLLOUT_ARGS+=(--balance-data)

GRPO_ARGS=(
  --advantage-estimator gspo
  --eps-clip 4e-4
  --use-tis
  --tis-clip 2.0
)

launch train.py

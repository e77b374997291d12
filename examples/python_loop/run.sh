#!/usr/bin/env bash
# The arithmetic quickstart with train_loop.py in the place of `slime train`. Flags at the end win.
#
# Environment: as in examples/recipe.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source examples/quickstart/run_folder.sh

FLAGS=("$@") # of both stages
slime=${SLIME_BINARY:-build/release/slime}
data=${DATA:-data}/arithmetic
model=${DATA:-data}/models/tiny
sft=$(run_folder python_loop-sft)
run=$(run_folder python_loop)

python3 tools/arithmetic_task.py "$data"
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2

# Supervised: solved sums, so that the model answers at all.
"$slime" train \
  --hf-checkpoint "$model" --run-dir "$sft" --fp32 \
  --prompt-data "$data/sft.jsonl" --input-key messages --rollout-shuffle \
  --rollout-function-path slime.rollout.sft_rollout.generate_rollout \
  --loss-type sft_loss --calculate-per-token-loss --debug-train-only \
  --num-rollout "${SFT_STEPS:-600}" --rollout-batch-size 128 --global-batch-size 128 \
  --use-dynamic-batch-size --max-tokens-per-gpu 8192 \
  --lr 3e-3 --lr-decay-style constant --lr-warmup-iters 20 --adam-beta2 0.98 --weight-decay 0 \
  "${FLAGS[@]}"

SLIME_BINARY=$slime PYTHONPATH=python python3 examples/python_loop/train_loop.py \
  --hf-checkpoint "$sft/latest" --run-dir "$run" --fp32 \
  --prompt-data "$data/rl.jsonl" --input-key prompt --label-key label --apply-chat-template --rollout-shuffle \
  --rm-type math --advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28 \
  --num-rollout "${RL_STEPS:-60}" --rollout-batch-size 32 --n-samples-per-prompt 8 --global-batch-size 256 \
  --rollout-max-response-len 48 --rollout-temperature 1 --rollout-skip-special-tokens \
  --eval-prompt-data sums "$data/test.jsonl" --eval-interval 10 --eval-temperature 0 \
  --use-dynamic-batch-size --max-tokens-per-gpu 16384 \
  --lr 2e-4 --lr-decay-style constant --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 20 "${FLAGS[@]}"

"$slime" report "$run"
touch "$sft/finished" "$run/finished"

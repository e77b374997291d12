#!/usr/bin/env bash
# A tiny model learns to add: first from a small corpus, then by itself. `./dev quickstart` runs this after the build.
#
# After the corpus the model adds about one in three unseen pairs of numbers; reinforcement learning takes it from there.
# Another run: ./examples/quickstart/arithmetic.sh --seed 2 (flags at the end win).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source examples/quickstart/run_folder.sh

slime=build/release/slime
data=data/arithmetic
model=data/models/tiny
sft=$(run_folder arithmetic-sft)
run=$(run_folder arithmetic)

python3 tools/arithmetic_task.py "$data" --limit 50
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2

# Supervised: 996 solved sums. Stopped while it still fails on most new ones.
"$slime" train \
  --hf-checkpoint "$model" --run-dir "$sft" --fp32 \
  --prompt-data "$data/sft.jsonl" --input-key messages --rollout-shuffle \
  --rollout-function-path slime.rollout.sft_rollout.generate_rollout \
  --loss-type sft_loss --calculate-per-token-loss --debug-train-only \
  --num-rollout 290 --rollout-batch-size 128 --global-batch-size 128 \
  --use-dynamic-batch-size --max-tokens-per-gpu 8192 \
  --lr 3e-3 --lr-decay-style constant --lr-warmup-iters 20 --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 1000000 "$@"

# Reinforcement: sums that are not in the corpus, eight tries each; only the right result is rewarded. "f1" compares
# words, so for an answer of one word it is 1 when the answer is right and 0 otherwise.
"$slime" train \
  --hf-checkpoint "$sft/latest" --run-dir "$run" --fp32 \
  --prompt-data "$data/rl.jsonl" --input-key prompt --label-key label --apply-chat-template --rollout-shuffle \
  --rm-type f1 --advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28 \
  --num-rollout 1500 --rollout-batch-size 64 --n-samples-per-prompt 8 --global-batch-size 512 \
  --rollout-max-response-len 6 --rollout-temperature 1 --rollout-skip-special-tokens \
  --eval-prompt-data sums "$data/test.jsonl" --eval-interval 50 --eval-temperature 0 \
  --use-dynamic-batch-size --max-tokens-per-gpu 16384 \
  --lr 7e-4 --lr-decay-style constant --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 1000000 "$@"

"$slime" report "$run"
touch "$sft/finished"
talk "$run" "17+25="

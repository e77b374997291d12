#!/usr/bin/env bash
# A tiny model learns to serve customers: examples/dialogue/README.md. Flags at the end win: ./examples/dialogue/run.sh --seed 2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source examples/quickstart/run_folder.sh
source examples/python.sh

slime=${SLIME_BINARY:-build/release/slime}
data=data/dialogue
model=data/models/tiny
sft=$(run_folder dialogue-sft)
run=$(run_folder dialogue)

PYTHONPATH=python "$python" examples/dialogue/make_data.py "$data"
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2

# Supervised: conversations of careful and careless agents.
"$slime" train \
  --hf-checkpoint "$model" --run-dir "$sft" --fp32 \
  --prompt-data "$data/sft.jsonl" --input-key messages --rollout-shuffle \
  --rollout-function-path slime.rollout.sft_rollout.generate_rollout \
  --loss-type sft_loss --calculate-per-token-loss --debug-train-only \
  --num-rollout 400 --rollout-batch-size 64 --global-batch-size 64 \
  --use-dynamic-batch-size --max-tokens-per-gpu 8192 \
  --lr 3e-3 --lr-decay-style constant --lr-warmup-iters 20 --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 1000000 "$@"

# Reinforcement: customers, eight tries each; the reward is 1 when the database is as it should be.
"$slime" train \
  --hf-checkpoint "$sft/latest" --run-dir "$run" --fp32 --plugin-python "$python" \
  --prompt-data "$data/rl.jsonl" --input-key prompt --label-key label --rollout-shuffle \
  --custom-generate-function-path examples/dialogue/serve.py \
  --advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28 \
  --num-rollout 60 --rollout-batch-size 16 --n-samples-per-prompt 8 --global-batch-size 128 \
  --rollout-max-response-len 256 --rollout-temperature 1 \
  --eval-prompt-data customers "$data/test.jsonl" --eval-interval 10 --eval-temperature 0 \
  --use-dynamic-batch-size --max-tokens-per-gpu 16384 \
  --lr 5e-4 --lr-decay-style constant --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 1000000 "$@"

"$slime" report "$run"
touch "$sft/finished" "$run/finished"

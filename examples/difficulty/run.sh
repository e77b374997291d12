#!/usr/bin/env bash
# Problems grow with the model: examples/difficulty/README.md. Flags at the end win: ./examples/difficulty/run.sh --seed 2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source examples/quickstart/run_folder.sh
source examples/python.sh

slime=${SLIME_BINARY:-build/release/slime}
data=data/difficulty
model=data/models/tiny
sft=$(run_folder difficulty-sft)
run=$(run_folder difficulty)

PYTHONPATH=python "$python" examples/difficulty/make_data.py "$data"
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2

# Supervised: answers of all levels, some of them wrong.
"$slime" train \
  --hf-checkpoint "$model" --run-dir "$sft" --fp32 \
  --prompt-data "$data/sft.jsonl" --input-key messages --rollout-shuffle \
  --rollout-function-path slime.rollout.sft_rollout.generate_rollout \
  --loss-type sft_loss --calculate-per-token-loss --debug-train-only \
  --num-rollout 1500 --rollout-batch-size 64 --global-batch-size 64 \
  --use-dynamic-batch-size --max-tokens-per-gpu 8192 \
  --lr 3e-3 --lr-decay-style constant --lr-warmup-iters 20 --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 1000000 "$@"

# Reinforcement: problems at the level that each environment has reached.
"$slime" train \
  --hf-checkpoint "$sft/latest" --run-dir "$run" --fp32 --plugin-python "$python" \
  --prompt-data "$data/rl.jsonl" --input-key prompt --label-key label --rollout-shuffle \
  --custom-generate-function-path examples/difficulty/rollout.py \
  --custom-rollout-log-function-path examples/difficulty/rollout.py \
  --advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28 \
  --num-rollout 200 --rollout-batch-size 16 --n-samples-per-prompt 16 --global-batch-size 256 \
  --rollout-max-response-len 256 --rollout-temperature 1 \
  --eval-prompt-data level_8 "$data/test.jsonl" --eval-interval 20 --eval-temperature 0 \
  --use-dynamic-batch-size --max-tokens-per-gpu 16384 \
  --lr 3e-4 --lr-decay-style constant --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 20 "$@"

"$slime" report "$run"
touch "$sft/finished" "$run/finished"

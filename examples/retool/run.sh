#!/usr/bin/env bash
# A tiny model learns to calculate with Python: examples/retool/README.md. Flags at the end win: ./examples/retool/run.sh --seed 2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source examples/quickstart/run_folder.sh

slime=${SLIME_BINARY:-build/release/slime}
data=${DATA:-data}/retool
model=${DATA:-data}/models/tiny
sft=$(run_folder retool-sft)
run=$(run_folder retool)

python3 examples/retool/make_data.py "$data"
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2

# Supervised: 4,500 conversations, most of which guess.
"$slime" train \
  --hf-checkpoint "$model" --run-dir "$sft" --fp32 \
  --prompt-data "$data/sft.jsonl" --input-key messages --rollout-shuffle \
  --rollout-function-path slime.rollout.sft_rollout.generate_rollout \
  --loss-type sft_loss --calculate-per-token-loss --debug-train-only \
  --num-rollout "${SFT_STEPS:-800}" --rollout-batch-size 64 --global-batch-size 64 \
  --use-dynamic-batch-size --max-tokens-per-gpu 8192 \
  --lr 2e-3 --lr-decay-style cosine --lr-warmup-iters 20 --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 1000000 "$@"

# Reinforcement: other problems, eight tries each; the reward is 1 for the right number. Programs run in the sandbox.
"$slime" train \
  --hf-checkpoint "$sft/latest" --run-dir "$run" --fp32 \
  --prompt-data "$data/rl.jsonl" --input-key prompt --label-key label --apply-chat-template --rollout-shuffle \
  --custom-generate-function-path examples.retool.retool.generate \
  --custom-rm-path examples.retool.retool.reward \
  --advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28 \
  --num-rollout "${RL_STEPS:-60}" --rollout-batch-size 8 --n-samples-per-prompt 8 --global-batch-size 64 \
  --rollout-max-response-len 160 --rollout-temperature 1 --rollout-skip-special-tokens \
  --eval-prompt-data problems "$data/test.jsonl" --eval-interval 10 --eval-temperature 0 \
  --use-dynamic-batch-size --max-tokens-per-gpu 16384 \
  --lr 3e-4 --lr-decay-style constant --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 1000000 "$@"

"$slime" report "$run"
touch "$sft/finished" "$run/finished"

#!/usr/bin/env bash
# A tiny model learns to look things up: examples/search/README.md. Flags at the end win: ./examples/search/run.sh --seed 2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source examples/quickstart/run_folder.sh

slime=${SLIME_BINARY:-build/release/slime}
data=${DATA:-data}/search
model=${DATA:-data}/models/tiny
sft=$(run_folder search-sft)
run=$(run_folder search)

python3 examples/search/make_data.py "$data"
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2

# Supervised: conversations about people who are not in the corpus.
"$slime" train \
  --hf-checkpoint "$model" --run-dir "$sft" --fp32 \
  --prompt-data "$data/sft.jsonl" --input-key messages --rollout-shuffle \
  --rollout-function-path slime.rollout.sft_rollout.generate_rollout \
  --loss-type sft_loss --calculate-per-token-loss --debug-train-only \
  --num-rollout "${SFT_STEPS:-400}" --rollout-batch-size 64 --global-batch-size 64 \
  --use-dynamic-batch-size --max-tokens-per-gpu 8192 \
  --lr 2e-3 --lr-decay-style constant --lr-warmup-iters 20 --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 1000000 "$@"

# Reinforcement: questions about the corpus, eight tries each; the reward is 1 for the right town.
"$slime" train \
  --hf-checkpoint "$sft/latest" --run-dir "$run" --fp32 \
  --prompt-data "$data/rl.jsonl" --input-key prompt --label-key label --apply-chat-template --rollout-shuffle \
  --custom-generate-function-path examples.search.search.generate \
  --custom-rm-path examples.search.search.reward --search-corpus "$data/corpus.jsonl" \
  --advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28 \
  --num-rollout "${RL_STEPS:-100}" --rollout-batch-size 16 --n-samples-per-prompt 8 --global-batch-size 128 \
  --rollout-max-response-len 160 --rollout-temperature 1 --rollout-skip-special-tokens \
  --eval-prompt-data questions "$data/test.jsonl" --eval-interval 20 --eval-temperature 0 \
  --use-dynamic-batch-size --max-tokens-per-gpu 16384 \
  --lr 3e-4 --lr-decay-style constant --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 1000000 "$@"

"$slime" report "$run"
touch "$sft/finished" "$run/finished"

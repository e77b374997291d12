#!/usr/bin/env bash
# A tiny model learns to use tools of MCP servers: examples/mcp_tools/README.md. Flags at the end win: ./examples/mcp_tools/run.sh --seed 2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source examples/quickstart/run_folder.sh

slime=${SLIME_BINARY:-build/release/slime}
data=${DATA:-data}/mcp_tools
model=${DATA:-data}/models/tiny
sft=$(run_folder mcp_tools-sft)
run=$(run_folder mcp_tools)

python3 examples/mcp_tools/make_data.py "$data"
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2

# Supervised: 6,000 conversations, most of which guess.
"$slime" train \
  --hf-checkpoint "$model" --run-dir "$sft" --fp32 \
  --prompt-data "$data/sft.jsonl" --input-key messages --rollout-shuffle \
  --rollout-function-path slime.rollout.sft_rollout.generate_rollout \
  --loss-type sft_loss --calculate-per-token-loss --debug-train-only \
  --num-rollout "${SFT_STEPS:-800}" --rollout-batch-size 64 --global-batch-size 64 \
  --use-dynamic-batch-size --max-tokens-per-gpu 8192 \
  --lr 2e-3 --lr-decay-style cosine --lr-warmup-iters 20 --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 1000000 "$@"

# Reinforcement: eight shops, eight tries each; the reward is 1 for the right number. The test is in two other shops.
"$slime" train \
  --hf-checkpoint "$sft/latest" --run-dir "$run" --fp32 \
  --prompt-data "$data/rl.jsonl" --input-key prompt --label-key label --metadata-key metadata --apply-chat-template --rollout-shuffle \
  --custom-generate-function-path examples.mcp_tools.mcp_tools.generate \
  --custom-rm-path examples.mcp_tools.mcp_tools.reward \
  --advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28 \
  --num-rollout "${RL_STEPS:-60}" --rollout-batch-size 16 --n-samples-per-prompt 8 --global-batch-size 128 \
  --rollout-max-response-len 300 --rollout-temperature 1 --rollout-skip-special-tokens \
  --eval-prompt-data questions "$data/test.jsonl" --eval-interval 10 --eval-temperature 0 \
  --use-dynamic-batch-size --max-tokens-per-gpu 16384 \
  --lr 3e-4 --lr-decay-style constant --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 1000000 "$@"

"$slime" report "$run"
touch "$sft/finished" "$run/finished"

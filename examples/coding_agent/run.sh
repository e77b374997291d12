#!/usr/bin/env bash
# A tiny model learns to work as a coding agent: examples/coding_agent/README.md. Flags at the end win: ./examples/coding_agent/run.sh --seed 2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source examples/quickstart/run_folder.sh
source examples/python.sh

slime=${SLIME_BINARY:-build/release/slime}
data=data/coding_agent
model=data/models/tiny_tools
sft=$(run_folder coding_agent-sft)
run=$(run_folder coding_agent)

PYTHONPATH=python "$python" examples/coding_agent/make_data.py "$data"
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2 \
  --words "<tool_call>" "</tool_call>" "<arg_key>" "</arg_key>" "<arg_value>" "</arg_value>" \
  --chat-template examples/coding_agent/chat_template.jinja

# Supervised: what agents of different patience did.
"$slime" train \
  --hf-checkpoint "$model" --run-dir "$sft" --fp32 \
  --prompt-data "$data/sft.jsonl" --input-key messages --rollout-shuffle \
  --rollout-function-path slime.rollout.sft_rollout.generate_rollout \
  --loss-type sft_loss --calculate-per-token-loss --debug-train-only \
  --num-rollout 600 --rollout-batch-size 64 --global-batch-size 64 \
  --use-dynamic-batch-size --max-tokens-per-gpu 8192 \
  --lr 3e-3 --lr-decay-style constant --lr-warmup-iters 20 --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 1000000 "$@"

# Reinforcement: bugs, eight tries each; the reward is 1 when cases that the agent has not seen come out right.
"$slime" train \
  --hf-checkpoint "$sft/latest" --run-dir "$run" --fp32 --plugin-python "$python" \
  --prompt-data "$data/rl.jsonl" --input-key prompt --label-key label --rollout-shuffle \
  --custom-generate-function-path examples/coding_agent/solve.py \
  --advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28 \
  --num-rollout 22 --rollout-batch-size 8 --n-samples-per-prompt 8 --global-batch-size 64 \
  --rollout-max-response-len 256 --rollout-temperature 1 \
  --eval-prompt-data bugs "$data/test.jsonl" --eval-interval 10 --eval-temperature 0 \
  --use-dynamic-batch-size --max-tokens-per-gpu 16384 \
  --lr 5e-4 --lr-decay-style constant --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 1000000 "$@"

"$slime" report "$run"
touch "$sft/finished" "$run/finished"

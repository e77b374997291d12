#!/usr/bin/env bash
# A tiny model learns to work as a coding agent: examples/coding_agent/README.md. Flags at the end win: ./examples/coding_agent/run.sh --seed 2
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh" "$@"
source examples/python.sh
model=${DATA:-data}/models/tiny_tools

PYTHONPATH=python "$python" examples/coding_agent/make_data.py "$data"
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2 \
  --words "<tool_call>" "</tool_call>" "<arg_key>" "</arg_key>" "<arg_value>" "</arg_value>" \
  --chat-template examples/coding_agent/chat_template.jinja

# What agents of different patience did.
imitate 600 --lr 3e-3 --lr-decay-style constant

# Bugs, eight tries each; the reward is 1 when cases that the agent has not seen come out right.
reinforce 22 8 8 --label-key label --plugin-python "$python" \
  --custom-generate-function-path examples/coding_agent/solve.py --rollout-max-response-len 256 --lr 5e-4 \
  --eval-prompt-data bugs "$data/test.jsonl" --eval-interval 10 --eval-temperature 0

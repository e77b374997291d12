#!/usr/bin/env bash
# A tiny model learns to serve customers: examples/dialogue/README.md. Flags at the end win: ./examples/dialogue/run.sh --seed 2
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh" "$@"
source examples/python.sh

PYTHONPATH=python "$python" examples/dialogue/make_data.py "$data"
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2

# Conversations of careful and careless agents.
imitate 400 --lr 3e-3 --lr-decay-style constant

# Customers, eight tries each; the reward is 1 when the database is as it should be.
reinforce 60 16 8 --label-key label --plugin-python "$python" \
  --custom-generate-function-path examples/dialogue/serve.py --rollout-max-response-len 256 --lr 5e-4 \
  --eval-prompt-data customers "$data/test.jsonl" --eval-interval 10 --eval-temperature 0

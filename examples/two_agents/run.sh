#!/usr/bin/env bash
# Two agents learn a game together: examples/two_agents/README.md. Flags at the end win: ./examples/two_agents/run.sh --seed 2
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh" "$@"
source examples/python.sh

PYTHONPATH=python "$python" examples/two_agents/make_data.py "$data"
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2

# What good and bad players said.
imitate 500 --lr 3e-3 --lr-decay-style constant

# Games about letters, sixteen tries each; both agents get 1 when the letter was found.
reinforce 150 8 16 --label-key label --plugin-python "$python" \
  --custom-generate-function-path examples/two_agents/game.py --rollout-max-response-len 256 --lr 5e-4 \
  --eval-prompt-data letters "$data/test.jsonl" --eval-interval 10 --eval-temperature 0

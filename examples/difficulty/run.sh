#!/usr/bin/env bash
# Problems grow with the model: examples/difficulty/README.md. Flags at the end win: ./examples/difficulty/run.sh --seed 2
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh" "$@"
source examples/python.sh

PYTHONPATH=python "$python" examples/difficulty/make_data.py "$data"
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2

# Answers of all levels, some of them wrong.
imitate 1500 --lr 3e-3 --lr-decay-style constant

# Problems at the level that each environment has reached.
reinforce 200 16 16 --label-key label --plugin-python "$python" \
  --custom-generate-function-path examples/difficulty/rollout.py \
  --custom-rollout-log-function-path examples/difficulty/rollout.py --rollout-max-response-len 256 --lr 3e-4 \
  --eval-prompt-data level_8 "$data/test.jsonl" --eval-interval 20 --eval-temperature 0 --save-interval 20

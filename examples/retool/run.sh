#!/usr/bin/env bash
# A tiny model learns to calculate with Python: examples/retool/README.md. Flags at the end win: ./examples/retool/run.sh --seed 2
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh" "$@"

python3 examples/retool/make_data.py "$data"
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2

# 4,500 conversations, most of which guess.
imitate 800 --lr 2e-3 --lr-decay-style cosine

# Other problems, eight tries each; the reward is 1 for the right number. Programs run in the sandbox.
reinforce 60 8 8 --label-key label --apply-chat-template \
  --custom-generate-function-path examples.retool.retool.generate --custom-rm-path examples.retool.retool.reward \
  --rollout-max-response-len 160 --rollout-skip-special-tokens --lr 3e-4 \
  --eval-prompt-data problems "$data/test.jsonl" --eval-interval 10 --eval-temperature 0

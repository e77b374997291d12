#!/usr/bin/env bash
# A tiny model learns to look things up: examples/search/README.md. Flags at the end win: ./examples/search/run.sh --seed 2
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh" "$@"

python3 examples/search/make_data.py "$data"
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2

# Conversations about people who are not in the corpus.
imitate 400 --lr 2e-3 --lr-decay-style constant

# Questions about the corpus, eight tries each; the reward is 1 for the right town.
reinforce 100 16 8 --label-key label --apply-chat-template \
  --custom-generate-function-path examples.search.search.generate --custom-rm-path examples.search.search.reward \
  --search-corpus "$data/corpus.jsonl" \
  --rollout-max-response-len 160 --rollout-skip-special-tokens --lr 3e-4 \
  --eval-prompt-data questions "$data/test.jsonl" --eval-interval 20 --eval-temperature 0

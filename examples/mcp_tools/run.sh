#!/usr/bin/env bash
# A tiny model learns to use tools of MCP servers: examples/mcp_tools/README.md. Flags at the end win: ./examples/mcp_tools/run.sh --seed 2
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh" "$@"

python3 examples/mcp_tools/make_data.py "$data"
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2

# 6,000 conversations, most of which guess.
imitate 800 --lr 2e-3 --lr-decay-style cosine

# Eight shops, eight tries each; the reward is 1 for the right number. The test is in two other shops.
reinforce 60 16 8 --label-key label --metadata-key metadata --apply-chat-template \
  --custom-generate-function-path examples.mcp_tools.mcp_tools.generate --custom-rm-path examples.mcp_tools.mcp_tools.reward \
  --rollout-max-response-len 300 --rollout-skip-special-tokens --lr 3e-4 \
  --eval-prompt-data questions "$data/test.jsonl" --eval-interval 10 --eval-temperature 0

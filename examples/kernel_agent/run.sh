#!/usr/bin/env bash
# A tiny model learns to write fast kernels: examples/kernel_agent/README.md. Flags at the end win: ./examples/kernel_agent/run.sh --seed 2
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh" "$@"

batch=${SFT_BATCH:-64}
samples=${RL_SAMPLES:-24} # of each of the three questions, each step

# shellcheck disable=SC2086
python3 examples/kernel_agent/make_data.py "$data" ${DATA_FLAGS:-}
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2

# Conversations in which kernels of every form are written, fast ones no more often than slow ones.
imitate 400 --rollout-batch-size "$batch" --global-batch-size "$batch" --lr 2e-3 --lr-decay-style cosine

# The reward is 0 for a wrong kernel, else it grows with the speed-up. Kernels run in the sandbox.
reinforce 40 3 "$samples" --metadata-key metadata --apply-chat-template \
  --custom-generate-function-path examples.kernel_agent.kernel_agent.generate \
  --custom-rm-path examples.kernel_agent.kernel_agent.reward \
  --rollout-max-response-len 440 --rollout-skip-special-tokens --lr 2e-4

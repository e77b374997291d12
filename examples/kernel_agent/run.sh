#!/usr/bin/env bash
# A tiny model learns to write fast C++ for PyTorch code: examples/kernel_agent/README.md.
# Flags at the end win: ./examples/kernel_agent/run.sh --max-turns 1 --seed 2
source "$(dirname "${BASH_SOURCE[0]}")/flags.sh" "$@"
set -- "${others[@]}"
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh" "$@"
model=${DATA:-data}/models/tiny_kernels
order=() # each step has every task once

batch=${SFT_BATCH:-32}
prompts=${RL_PROMPTS:-5} # of a step: its five tasks
samples=${RL_SAMPLES:-8}  # of each prompt

# shellcheck disable=SC2086
PYTHONPATH=python:. python3 examples/kernel_agent/make_data.py "$data" --brief ${DATA_FLAGS:---tasks swish sum_rows softmax_rows normalize_rows matmul}
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2 --positions 1536 --words-file "$data/words.json"

# Conversations in which kernels of every form are written, fast ones no more often than slow ones.
imitate 500 --rollout-batch-size "$batch" --global-batch-size "$batch" --lr 3e-3 --lr-decay-style cosine --max-tokens-per-gpu 16384

# Each kernel is compiled, checked on shapes that the question does not show, and timed against eager PyTorch.
reinforce 40 "$prompts" "$samples" --metadata-key metadata \
  --custom-generate-function-path examples.kernel_agent.kernel_agent.generate "${agent[@]}" \
  --rollout-max-response-len 400 --rollout-max-prompt-len 1100 --rollout-max-context-len 1536 --lr 3e-4 \
  --eval-prompt-data tasks "$data/test.jsonl" --eval-interval 10 --eval-temperature 0

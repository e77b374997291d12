#!/usr/bin/env bash
# A model learns to write Triton for PyTorch code, on an NVIDIA GPU: examples/kernel_agent/README.md. It needs a Python with torch
# and triton for that GPU: KERNEL_AGENT_PYTHON names it.
#
#   ./examples/kernel_agent/run_gpu.sh                        # a tiny model, a few minutes
#   MODEL=path/to/Qwen3-8B ./examples/kernel_agent/run_gpu.sh # a checkpoint: whole questions, all tasks
#
# Flags at the end win, as for run.sh.
source "$(dirname "${BASH_SOURCE[0]}")/flags.sh" "$@"
set -- "${others[@]}"
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh" "$@"
data=${DATA:-data}/kernel_agent_gpu
sft=$(run_folder kernel_agent_gpu-sft)
run=$(run_folder kernel_agent_gpu)

if [[ -z ${MODEL:-} ]]; then
  model=${DATA:-data}/models/tiny_triton
  order=() # each step has every task once
  # shellcheck disable=SC2086
  PYTHONPATH=python:. python3 examples/kernel_agent/make_data.py "$data" --kernel-backend triton --brief ${DATA_FLAGS:-}
  python3 tools/tiny_model.py "$model" --hidden 128 --layers 2 --positions 2048 --words-file "$data/words.json"
  supervised=(--lr 2e-3 --rollout-batch-size 32 --global-batch-size 32 --lr-decay-style cosine)
  policy=(--rollout-max-response-len 500 --rollout-max-prompt-len 1500 --rollout-max-context-len 2048 --lr 4e-4)
else
  # Conversations of the tasks with known forms, questions of all tasks.
  model=$MODEL
  # shellcheck disable=SC2086
  PYTHONPATH=python:. python3 examples/kernel_agent/make_data.py "$data" --kernel-backend triton --tasks all ${DATA_FLAGS:-}
  precision=--bf16
  supervised=(--lr 2e-5 --lr-decay-style cosine)
  policy=(--rollout-max-response-len 2048 --rollout-max-prompt-len 6000 --rollout-max-context-len 8192 --lr 2e-6)
fi

imitate 500 --device cuda --max-tokens-per-gpu 32768 "${supervised[@]}"
reinforce 40 "${RL_PROMPTS:-10}" "${RL_SAMPLES:-8}" --device cuda --metadata-key metadata \
  --custom-generate-function-path examples.kernel_agent.kernel_agent.generate --kernel-backend triton "${agent[@]}" "${policy[@]}" \
  --eval-prompt-data tasks "$data/test.jsonl" --eval-interval 20 --eval-temperature 0

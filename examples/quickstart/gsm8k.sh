#!/usr/bin/env bash
# Qwen3-0.6B learns grade-school math (GSM8K) on one NVIDIA GPU. `./dev quickstart gsm8k` runs this after the build. Model and
# data come from Hugging Face's hub, 1.2 GB once; `--dry-run` downloads nothing and says what the run would read.
#
# Not yet measured on a GPU: the share of right answers to the test questions is evaluated every ten steps, and before the first.
# Flags at the end win: ./examples/quickstart/gsm8k.sh --rollout-batch-size 16 --global-batch-size 128 for a smaller GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source examples/quickstart/run_folder.sh

slime=${SLIME_BINARY:-build/release/slime}
run=$(run_folder gsm8k)

"$slime" train \
  --hf-checkpoint "${MODEL:-Qwen/Qwen3-0.6B}" --run-dir "$run" --bf16 \
  --prompt-data openai/gsm8k:train --rollout-shuffle \
  --apply-chat-template --apply-chat-template-kwargs '{"enable_thinking": false}' \
  --rm-type gsm8k --advantage-estimator grpo \
  --num-rollout 100 --rollout-batch-size 64 --n-samples-per-prompt 8 --global-batch-size 512 \
  --rollout-max-response-len 512 --rollout-temperature 1 \
  --eval-prompt-data gsm8k 'openai/gsm8k:test[:256]' --eval-interval 10 --eval-temperature 0 \
  --use-dynamic-batch-size --max-tokens-per-gpu 16384 \
  --lr 1e-6 --lr-decay-style constant --adam-beta2 0.98 --weight-decay 0.1 \
  --save-interval 20 "$@"

for word in "$@"; do [[ $word != --dry-run ]] || exit 0; done
"$slime" report "$run"
talk "$run" 'A pen costs 3 dollars and a book 5 times as much. What do both cost?'

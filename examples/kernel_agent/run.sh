#!/usr/bin/env bash
# A tiny model learns to write fast kernels: examples/kernel_agent/README.md. Flags at the end win: ./examples/kernel_agent/run.sh --seed 2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source examples/quickstart/run_folder.sh

slime=${SLIME_BINARY:-build/release/slime}
data=${DATA:-data}/kernel_agent
model=${DATA:-data}/models/tiny
batch=${SFT_BATCH:-64}
samples=${RL_SAMPLES:-24}  # of each of the three questions, each step
sft=$(run_folder kernel_agent-sft)
run=$(run_folder kernel_agent)

# shellcheck disable=SC2086
python3 examples/kernel_agent/make_data.py "$data" ${DATA_FLAGS:-}
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2

# Supervised: conversations in which kernels of every form are written, fast ones no more often than slow ones.
"$slime" train \
  --hf-checkpoint "$model" --run-dir "$sft" --fp32 \
  --prompt-data "$data/sft.jsonl" --input-key messages --rollout-shuffle \
  --rollout-function-path slime.rollout.sft_rollout.generate_rollout \
  --loss-type sft_loss --calculate-per-token-loss --debug-train-only \
  --num-rollout "${SFT_STEPS:-400}" --rollout-batch-size "$batch" --global-batch-size "$batch" \
  --use-dynamic-batch-size --max-tokens-per-gpu 8192 \
  --lr 2e-3 --lr-decay-style cosine --lr-warmup-iters 20 --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 1000000 "$@"

# Reinforcement: the reward is 0 for a wrong kernel, else it grows with the speed-up. Kernels run in the sandbox.
"$slime" train \
  --hf-checkpoint "$sft/latest" --run-dir "$run" --fp32 \
  --prompt-data "$data/rl.jsonl" --input-key prompt --metadata-key metadata --apply-chat-template --rollout-shuffle \
  --custom-generate-function-path examples.kernel_agent.kernel_agent.generate \
  --custom-rm-path examples.kernel_agent.kernel_agent.reward \
  --advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28 \
  --num-rollout "${RL_STEPS:-40}" --rollout-batch-size 3 --n-samples-per-prompt "$samples" --global-batch-size $((3 * samples)) \
  --rollout-max-response-len 440 --rollout-temperature 1 --rollout-skip-special-tokens \
  --use-dynamic-batch-size --max-tokens-per-gpu 16384 \
  --lr 2e-4 --lr-decay-style constant --adam-beta2 0.98 --weight-decay 0 \
  --save-interval 1000000 "$@"

"$slime" report "$run"
touch "$sft/finished" "$run/finished"

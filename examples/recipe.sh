# shellcheck shell=bash disable=SC2034
# Common part of the examples' run.sh, which source it with the user's flags. Sets slime (the program), data, model, and the
# run folders sft and run of the example, whose name is that of the script's folder, and precision and order, flags. Stages: `imitate`, then `reinforce`.
#
# Environment: DATA and RUNS are other folders than data/ and runs/, SLIME_BINARY is another program, SFT_STEPS and RL_STEPS
# are other numbers of steps.
set -euo pipefail
example=$(basename "$(cd "$(dirname "$0")" && pwd)")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source examples/quickstart/run_folder.sh

precision=--fp32
order=(--rollout-shuffle) # of the prompts
FLAGS=("$@") # of both stages; the last ones of the commands, so they win
slime=${SLIME_BINARY:-build/release/slime}
data=${DATA:-data}/$example
model=${DATA:-data}/models/tiny
sft=$(run_folder "$example-sft")
run=$(run_folder "$example")

# "imitate STEPS [FLAG...]": supervised training of the model on the conversations of sft.jsonl.
imitate() {
  "$slime" train \
    --hf-checkpoint "$model" --run-dir "$sft" "$precision" \
    --prompt-data "$data/sft.jsonl" --input-key messages --rollout-shuffle \
    --rollout-function-path slime.rollout.sft_rollout.generate_rollout \
    --loss-type sft_loss --calculate-per-token-loss --debug-train-only \
    --num-rollout "${SFT_STEPS:-$1}" --rollout-batch-size 64 --global-batch-size 64 \
    --use-dynamic-batch-size --max-tokens-per-gpu 8192 \
    --lr-warmup-iters 20 --adam-beta2 0.98 --weight-decay 0 \
    "${@:2}" "${FLAGS[@]}"
}

# "reinforce STEPS PROMPTS SAMPLES [FLAG...]": GRPO from what `imitate` saved, on rl.jsonl, with PROMPTS x SAMPLES answers a
# step; then the report.
reinforce() {
  "$slime" train \
    --hf-checkpoint "$sft/latest" --run-dir "$run" "$precision" \
    --prompt-data "$data/rl.jsonl" --input-key prompt "${order[@]}" \
    --advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28 \
    --num-rollout "${RL_STEPS:-$1}" --rollout-batch-size "$2" --n-samples-per-prompt "$3" --global-batch-size $(($2 * $3)) \
    --rollout-temperature 1 \
    --use-dynamic-batch-size --max-tokens-per-gpu 16384 \
    --lr-decay-style constant --adam-beta2 0.98 --weight-decay 0 \
    "${@:4}" "${FLAGS[@]}"
  "$slime" report "$run"
  touch "$sft/finished" "$run/finished"
}

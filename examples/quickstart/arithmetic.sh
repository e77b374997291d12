#!/usr/bin/env bash
# A tiny model learns to add: first by imitation, then by itself. `./dev quickstart` runs this after the build.
#
# The corpus has sums that are only answered and sums that are worked out column by column (tools/arithmetic_task.py).
# After imitating it the model mostly guesses. Reinforcement learning rewards right results alone, and the model finds
# out that working pays: its answers grow longer and become right.
#
# Another run: ./examples/quickstart/arithmetic.sh --seed 2 (flags at the end win). Another model, by the same recipe:
# FORM=experts (four in each layer), FORM=latent (latent attention) or FORM=delta (a gated delta net in the first layer).
# LORA_RANK=32: reinforcement trains adapters of that rank beside the weights (docs/lora.md).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source examples/quickstart/run_folder.sh

slime=${SLIME_BINARY:-build/release/slime}
data=${DATA:-data}/arithmetic
form=${FORM:-}
case $form in
  "") shape=() ;;
  experts) shape=(--experts 4) ;;
  latent) shape=(--latent 32) ;;
  delta) shape=(--delta) ;;
  *) echo "FORM=$form: should be experts, latent or delta" >&2 && exit 2 ;;
esac
rank=${LORA_RANK:-}
adapters=()
[[ -z $rank ]] || adapters=(--lora-rank "$rank" --lr 2e-3)
model=${DATA:-data}/models/tiny${form:+-$form}
sft=$(run_folder "arithmetic${form:+-$form}-sft")
run=$(run_folder "arithmetic${form:+-$form}${rank:+-rank-$rank}")

python3 tools/arithmetic_task.py "$data"
python3 tools/tiny_model.py "$model" --hidden 64 --layers 2 "${shape[@]}"

cat <<TEXT

This has two stages, on two free cores two to ten minutes in all, by their speed:
  1. supervised: the model imitates 4,000 solved sums, and learns to guess (600 steps)
  2. reinforcement learning: it tries sums that it has not seen, and only right results count (100 steps)

==> stage 1 of 2: supervised
TEXT

# Supervised: 4,000 solved sums, 128 at a time.
SLIME_STAGE="1 of 2" "$slime" train \
  --hf-checkpoint "$model" --run-dir "$sft" --fp32 \
  --prompt-data "$data/sft.jsonl" --input-key messages --rollout-shuffle \
  --rollout-function-path slime.rollout.sft_rollout.generate_rollout \
  --loss-type sft_loss --calculate-per-token-loss --debug-train-only \
  --num-rollout 600 --rollout-batch-size 128 --global-batch-size 128 \
  --use-dynamic-batch-size --max-tokens-per-gpu 8192 \
  --lr 3e-3 --lr-decay-style constant --lr-warmup-iters 20 --adam-beta2 0.98 --weight-decay 0 \
  "$@"

echo
echo "==> stage 2 of 2: reinforcement learning"

# Reinforcement: sums that are not in the corpus, eight tries each; the reward is 1 when the boxed result is right.
"$slime" train \
  --hf-checkpoint "$sft/latest" --run-dir "$run" --fp32 \
  --prompt-data "$data/rl.jsonl" --input-key prompt --label-key label --apply-chat-template --rollout-shuffle \
  --rm-type math --advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28 \
  --num-rollout 100 --rollout-batch-size 32 --n-samples-per-prompt 8 --global-batch-size 256 \
  --rollout-max-response-len 48 --rollout-temperature 1 --rollout-skip-special-tokens \
  --eval-prompt-data sums "$data/test.jsonl" --eval-interval 10 --eval-temperature 0 \
  --use-dynamic-batch-size --max-tokens-per-gpu 16384 \
  --lr 2e-4 --lr-decay-style constant --adam-beta2 0.98 --weight-decay 0 \
  "${adapters[@]}" "$@"

"$slime" report "$run"
touch "$sft/finished"
talk "$run" "347+274="
echo "It was taught sums of two numbers with three digits, and knows nothing else."

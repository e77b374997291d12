# shellcheck shell=bash disable=SC2034
# Common part of the launchers, which source it with their words: MODEL, then flags. It sets the arrays that most of them
# share; a launcher replaces or extends those in which it differs, and ends with `launch train.py` or `launch train_async.py`.
#
# MODEL_NAME and MODEL_ARGS come from scripts/models/MODEL.sh. RECIPE is the launcher's name without run- and .sh.
# FLAGS are the user's flags: the last ones of the command, so they win. The folders can be set before the command.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
RECIPE=$(basename "$0" .sh)
RECIPE=${RECIPE#run-}
MODELS=${MODELS:-data/models}  # model directories, as Hugging Face has them
DATA=${DATA:-data}             # data sets
RUNS=${RUNS:-runs}             # what runs leave behind
DEVICE=${DEVICE:-auto}         # cpu, cuda or hip; auto: cuda where an NVIDIA GPU is visible

if [[ $# -eq 0 || ! -e $ROOT/scripts/models/$1.sh ]]; then
  echo "usage: $0 MODEL [FLAGS...]; MODEL is one of: $(basename -s .sh -a "$ROOT"/scripts/models/*.sh | xargs)" >&2
  exit 2
fi
# shellcheck source=/dev/null
source "$ROOT/scripts/models/$1.sh"
FLAGS=("${@:2}")

CKPT_ARGS=(
  --hf-checkpoint "$MODELS/$MODEL_NAME"
  --save "$RUNS/$MODEL_NAME-$RECIPE"
  --save-interval 20
)

# Groups of 8 answers to problems; what scores them is the launcher's.
GROUP_ARGS=(
  --prompt-data "$DATA/dapo-math-17k/dapo-math-17k.jsonl"
  --input-key prompt
  --label-key label
  --rollout-shuffle
  --num-rollout 3000
  --rollout-batch-size 32
  --n-samples-per-prompt 8
  --rollout-max-response-len 8192
  --rollout-temperature 1
  --global-batch-size 256
)

ROLLOUT_ARGS=("${GROUP_ARGS[@]}" --apply-chat-template --rm-type deepscaler)

EVAL_ARGS=(
  --eval-interval 20
  --eval-prompt-data aime "$DATA/aime-2024/aime-2024.jsonl"
  --n-samples-per-eval-prompt 16
  --eval-max-response-len 16384
  --eval-top-p 1
)

PERF_ARGS=(
  --device "$DEVICE"
  --actor-num-nodes 1
  --actor-num-gpus-per-node 1
  --use-dynamic-batch-size
  --max-tokens-per-gpu 9216
  --recompute-granularity full
)

GRPO_ARGS=(
  --advantage-estimator grpo
)

OPTIMIZER_ARGS=(
  --optimizer adam
  --lr 1e-6
  --lr-decay-style constant
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.98
)

SGLANG_ARGS=(
  --sglang-server-concurrency 256
)

WANDB_ARGS=(
  # --use-wandb
  # --wandb-project slime
  # --wandb-group "$MODEL_NAME-$RECIPE"
)

# "launch PROGRAM": the script becomes PROGRAM of the project's root, with all arrays as they are now.
launch() {
  exec python3 "$ROOT/$1" \
    "${MODEL_ARGS[@]}" \
    "${CKPT_ARGS[@]}" \
    "${ROLLOUT_ARGS[@]}" \
    "${EVAL_ARGS[@]}" \
    "${PERF_ARGS[@]}" \
    "${GRPO_ARGS[@]}" \
    "${OPTIMIZER_ARGS[@]}" \
    "${SGLANG_ARGS[@]}" \
    "${WANDB_ARGS[@]}" \
    "${FLAGS[@]}"
}

#!/usr/bin/env bash
# Rollouts that a generator of yours draws beside the run wait in a rollout buffer, and the trainer takes whole groups of them
# (docs/buffer.md). The buffer is started and ended here; what waits in it is there for the next start.
#
#   GENERATOR=my_generator.py TASK=my-task scripts/run-buffer.sh MODEL [FLAGS...]     without them: math problems
#   BUFFER_URL=http://127.0.0.1:8889 scripts/run-buffer.sh MODEL [FLAGS...]           with a buffer that runs already
#
# MODEL is a file of scripts/models, FLAGS at the end win; --dry-run only checks
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$ROOT/scripts/launch.sh" "$@"

CKPT_ARGS=(
  --hf-checkpoint "$MODELS/$MODEL_NAME"
  --save "$RUNS/$MODEL_NAME-buffer"
  --save-interval 20
)

BUFFER_ARGS=(
  --folder "$RUNS/$MODEL_NAME-buffer.rollouts"
  --port 0
  ${GENERATOR:+--generator "$GENERATOR"}
)

ROLLOUT_ARGS=(
  --rollout-function-path slime.rollout.buffer_rollout.generate_rollout
  --rollout-task-type "${TASK:-math}"
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
  --use-kl-loss
  --kl-loss-coef 0.001
  --kl-loss-type low_var_kl
  --entropy-coef 0.00
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
  # --wandb-group "$MODEL_NAME-buffer"
)

# It has a session of its own, so that Ctrl-C is the trainer's alone, and ends when the process that this script becomes has ended.
start_buffer() {
  local program=${SLIME_BINARY:-$ROOT/build/release/slime} log=$RUNS/$MODEL_NAME-buffer.rollouts.log
  [[ -x $program ]] || program=slime
  mkdir -p "$RUNS"
  : >"$log"
  # shellcheck disable=SC2016
  setsid bash -c '"${@:2}" & tail --pid="$1" -f /dev/null & wait -n; kill $(jobs -p)' \
    buffer $$ "$program" buffer "${BUFFER_ARGS[@]}" >"$log" 2>&1 </dev/null &
  until BUFFER_URL=$(grep -oPm1 '^ready: \K\S+' "$log"); do
    kill -0 $! 2>/dev/null || { cat "$log" >&2; exit 2; }
    sleep 0.1
  done
}

if [[ -z ${BUFFER_URL:-} ]]; then
  [[ " ${FLAGS[*]} " == *" --dry-run "* ]] && BUFFER_URL=http://127.0.0.1:8889 || start_buffer
fi

exec python3 "$ROOT"/train.py \
  "${MODEL_ARGS[@]}" \
  "${CKPT_ARGS[@]}" \
  "${ROLLOUT_ARGS[@]}" \
  --rollout-buffer-url "$BUFFER_URL" \
  "${PERF_ARGS[@]}" \
  "${GRPO_ARGS[@]}" \
  "${OPTIMIZER_ARGS[@]}" \
  "${SGLANG_ARGS[@]}" \
  "${WANDB_ARGS[@]}" \
  "${FLAGS[@]}"

#!/usr/bin/env bash
# A generator of yours, concurrent with the run, fills a rollout buffer; the trainer takes whole groups from it
# (docs/buffer.md). The buffer is started and ended here; what waits in it is there for the next start.
#
#   GENERATOR=my_generator.py TASK=my-task scripts/run-buffer.sh MODEL [FLAGS...]     without them: math problems
#   BUFFER_URL=http://127.0.0.1:8889 scripts/run-buffer.sh MODEL [FLAGS...]           with a buffer that runs already
#
# MODEL is a file of scripts/models, FLAGS at the end win; --dry-run only checks
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh" "$@"

BUFFER_ARGS=(
  --folder "$RUNS/$MODEL_NAME-buffer.rollouts"
  --port 0
  ${GENERATOR:+--generator "$GENERATOR"}
)

ROLLOUT_ARGS=(
  --rollout-function-path slime.rollout.buffer_rollout.generate_rollout
  --rollout-task-type "${TASK:-math}"
  "${GROUP_ARGS[@]}"
)

EVAL_ARGS=()

GRPO_ARGS+=(
  --use-kl-loss
  --kl-loss-coef 0.001
  --kl-loss-type low_var_kl
  --entropy-coef 0.00
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

ROLLOUT_ARGS+=(--rollout-buffer-url "$BUFFER_URL")

launch train.py

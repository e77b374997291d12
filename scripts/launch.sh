# shellcheck shell=bash
# Sourced by the launchers with their words: MODEL, then flags. Sets MODEL_NAME and MODEL_ARGS of that model, FLAGS, and
# where things are; each of those can be set before the command.
MODELS=${MODELS:-data/models}  # model directories, as Hugging Face has them
DATA=${DATA:-data}             # data sets
RUNS=${RUNS:-runs}             # what runs leave behind
DEVICE=${DEVICE:-auto}         # cpu or cuda; auto: cuda where an NVIDIA GPU is visible

if [[ $# -eq 0 || ! -e $ROOT/scripts/models/$1.sh ]]; then
  echo "usage: $0 MODEL [FLAGS...]; MODEL is one of: $(basename -s .sh -a "$ROOT"/scripts/models/*.sh | xargs)" >&2
  exit 2
fi
# shellcheck source=/dev/null
source "$ROOT/scripts/models/$1.sh"
FLAGS=("${@:2}")

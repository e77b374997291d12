# shellcheck shell=bash disable=SC2154
# Sourced by the quickstarts and examples. RUNS names another folder than runs/, DATA than data/, SLIME_BINARY another program.

# A folder under runs/: NAME, or NAME-2, NAME-3, ... when earlier ones are finished. An unfinished run is continued.
run_folder() {
  local runs=${RUNS:-runs} number=1
  local folder=$runs/$1
  while [[ -e $folder/finished ]]; do folder=$runs/$1-$((++number)); done
  echo "$folder"
}

# What to type next: of a RUN, and a question.
talk() {
  touch "$1/finished"
  cat <<TEXT

Read the run:        $slime view $1     (or open $1/report.html)
Talk to the model:   $slime chat $1 --message '$2' --set temperature=0
Leave --message out for a conversation. \`$slime help\` says what else there is.
TEXT
}

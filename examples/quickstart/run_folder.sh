# shellcheck shell=bash
# Sourced by the quickstarts and examples. RUNS names another folder than runs/.

# A folder under runs/: NAME, or NAME-2, NAME-3, ... when earlier ones are finished. An unfinished run is continued.
run_folder() {
  local runs=${RUNS:-runs} number=1
  local folder=$runs/$1
  while [[ -e $folder/finished ]]; do folder=$runs/$1-$((++number)); done
  echo "$folder"
}

# What to type next: of a RUN, a question (a JSON string without its quotes), and of adapters the model beside which they are.
talk() {
  local model="$1/latest"
  [[ -z ${3:-} ]] || model="$3 --adapter $model"
  touch "$1/finished"
  cat <<TEXT

Read the run:        $1/report.html  (open it in a browser)
Talk to the model:   build/release/slime serve --model $model --port 30000
and, in another terminal:
  curl -s http://127.0.0.1:30000/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"model": "default", "temperature": 0, "messages": [{"role": "user", "content": "$2"}]}'
TEXT
}

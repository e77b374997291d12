#!/usr/bin/env bash
# In a root where slime is installed: a tiny model, two training steps on the CPU, the Python package, a program in the sandbox.
# Says how long each took. Where there can be no sandbox it shows what slime says about it.
set -euo pipefail
clone=$(dirname "${BASH_SOURCE[0]}")/../..
work=$(mktemp -d)
cd "$work"
now() { date +%s.%N; }
took() { printf '    %-28s %6.2f s\n' "$1" "$(echo "$2 $(now)" | awk '{print $2 - $1}')"; }

begin=$(now)
slime --version >/dev/null
took "slime --version" "$begin"

begin=$(now)
python3 "$clone/tools/tiny_model.py" model --hidden 64 --layers 2 >/dev/null
python3 "$clone/tools/arithmetic_task.py" data >/dev/null
took "model and data" "$begin"

begin=$(now)
slime train --hf-checkpoint model --prompt-data data/rl.jsonl --input-key prompt --label-key label --apply-chat-template \
  --rm-type math --rollout-batch-size 4 --n-samples-per-prompt 4 --global-batch-size 16 --rollout-max-response-len 8 \
  --num-rollout 2 --lr 1e-3 --fp32 --device cpu --run-dir run >log 2>&1 || { cat log; exit 1; }
[[ $(grep -c '"train/loss"' run/metrics.jsonl) == 2 ]] || { cat log; exit 1; }
took "two training steps" "$begin"

begin=$(now)
python=$(dirname "$(command -v slime)")/python
"$python" -c 'import slime; from slime.program import find_program; print("    import slime:", slime.__version__, find_program())'
took "import slime" "$begin"

begin=$(now)
if said=$(slime sandbox --check 2>&1); then
  printf 'print(6 * 7)\n' >answer.py
  [[ $(slime sandbox answer.py) == *42* ]] || exit 1
  took "a program in the sandbox" "$begin"
else
  echo "    no sandbox, and slime says: $said"
fi

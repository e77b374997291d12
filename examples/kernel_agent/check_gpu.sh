#!/usr/bin/env bash
# On an NVIDIA GPU, within twelve minutes: what a Triton grade costs, whether cheats earn nothing, and whether the reward rises.
#
#   SLIME_BINARY=build/release/slime KERNEL_AGENT_PYTHON=python3 ./examples/kernel_agent/check_gpu.sh
#
# It needs what run_gpu.sh needs, and bubblewrap. Each part has its own time limit; one that fails does not stop the next.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
export DATA="$out/data" RUNS="$out/runs" PYTHONPATH="python:.:tests/end_to_end"
failed=0

part() { # NAME SECONDS COMMAND...
  local begin=$SECONDS
  timeout "$2" "${@:3}" >"$out/$1.txt" 2>&1
  local status=$?
  echo "== $1: exit code $status, $((SECONDS - begin)) s"
  tail -n 12 "$out/$1.txt"
  ((status == 0)) || failed=1
}

part sandbox 10 "${SLIME_BINARY:-build/release/slime}" sandbox --check
# The first grade starts the processes that have Torch; each later one is a fork of them.
part grade 50 python3 -m examples.kernel_agent.grade_file softmax_rows examples/kernel_agent/answers/softmax_rows.py \
  --gpu "${KERNEL_GPU:-0}" --repeat 4
part cheats 300 python3 tests/end_to_end/kernel_cheats.py --gpu "${KERNEL_GPU:-0}"
SFT_STEPS=${SFT_STEPS:-120} RL_STEPS=${RL_STEPS:-48} RL_PROMPTS=2 RL_SAMPLES=${RL_SAMPLES:-16} DATA_FLAGS="--tasks softmax_rows swish" \
  part learning 330 ./examples/kernel_agent/run_gpu.sh --single-turn --kernel-gpu "${KERNEL_GPU:-0}"
part reward 10 python3 - "$RUNS" <<'PYTHON'
import json, pathlib, sys

found = sorted(pathlib.Path(sys.argv[1]).glob("kernel_agent_gpu*/metrics.jsonl"))
rows = [json.loads(line) for path in found if "-sft" not in path.parent.name for line in path.read_text().splitlines()]
rewards = [row["rollout/raw_reward"] for row in rows if "rollout/raw_reward" in row]
if not rewards:
    sys.exit("no step has a reward")
quarter = max(1, len(rewards) // 4)
first, last = (sum(each) / len(each) for each in (rewards[:quarter], rewards[-quarter:]))
print(f"reward of {len(rewards)} steps: {first:.3f} in the first quarter, {last:.3f} in the last")
sys.exit(last <= first)
PYTHON
echo "== all output: $out"
exit "$failed"

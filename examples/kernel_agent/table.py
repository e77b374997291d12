#!/usr/bin/env python3
"""What a run's kernels are worth on each shape, those that the questions do not show too, as a table.

    PYTHONPATH=python:. python3 examples/kernel_agent/table.py RUN_DIR [--steps 10] [--kernel-backend cpp] [--code]

Of each task: the kernel that was the best one of most conversations of the last steps, graded anew.
"""

import argparse
import asyncio
import json
from collections import Counter, defaultdict
from pathlib import Path

from examples.kernel_agent import tasks
from examples.kernel_agent.grade import grade
from examples.kernel_agent.scores import BACKENDS


def best_kernels(run_dir, steps):
    """{task: (code, conversations whose best kernel it is, conversations)}"""
    counts, totals, seen = defaultdict(Counter), Counter(), set()
    for path in sorted((run_dir / "rollouts").glob("step_*.jsonl"))[-steps:]:
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:  # texts may have other line breaks
            sample = json.loads(line)
            execution = (path.name, sample["rollout_id"])
            if execution in seen:  # one conversation can be several samples
                continue
            seen.add(execution)
            task, turns = sample["metadata"]["task"], sample["metadata"]["turns"]
            totals[task] += 1
            best = max(turns, key=lambda turn: turn["score"], default=None)
            if best and best["correct"]:
                counts[task][best["code"]] += 1
    return {task: (*(counts[task].most_common(1) or [(None, 0)])[0], totals[task]) for task in sorted(totals)}


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--steps", type=int, default=10, help="the last so many")
    parser.add_argument("--kernel-tasks", default="", help="a folder of tasks of your own")
    parser.add_argument("--kernel-backend", default="cpp", choices=BACKENDS)
    parser.add_argument("--kernel-gpu", type=int, help="N of /dev/nvidiaN")
    parser.add_argument("--code", action="store_true", help="print the kernels too")
    args = parser.parse_args()

    kernels = best_kernels(args.run_dir, args.steps)
    print("| task | its conversations that chose it | speed-up | at held-out shapes |\n| --- | --- | --- | --- |")
    for name, (code, count, total) in kernels.items():
        line = f"| {name} | {count} of {total} |"
        if code is None:
            print(f"{line} none is correct | |")
            continue
        task = tasks.find(name, folder=args.kernel_tasks or None)
        verdict = await grade(task, code, args.kernel_backend, gpu=args.kernel_gpu, rounds=5, time_held_out=True)
        if verdict.correct:
            others = ", ".join(f"{sizes}: {speedup:.2f}" for sizes, speedup in verdict.held_out_speedups)
            print(f"{line} {verdict.speedup:.2f} | {others} |", flush=True)
        else:
            print(f"{line} {verdict.feedback.partition(chr(10))[0]} | |", flush=True)
    if args.code:
        for name, (code, _, _) in kernels.items():
            print(f"\n{name}:\n\n{code}")


if __name__ == "__main__":
    asyncio.run(main())

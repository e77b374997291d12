#!/usr/bin/env python3
"""Prompts of the times-table task, one JSON object per line: {"prompt": [messages], "label": "56"}.

    python3 tools/times_table.py OUT_DIR      # train.jsonl (2,048 rows), test.jsonl (64 rows)

Each prompt shows one worked example and asks for another product; both factors are drawn from 2 to 12. Train and test
share the 121 questions: the task shows that learning works, not that it generalises. The rows are the same on every
machine and Python.
"""

import json
import random
import sys
from pathlib import Path

INSTRUCTION = " Put the final answer in \\boxed{}."
SETS = {"train.jsonl": (1, 2048), "test.jsonl": (10_000, 64)}  # file: seed, rows


def row(rng: random.Random) -> dict:
    left, right = rng.randint(2, 12), rng.randint(2, 12)
    return {
        "prompt": [
            {"role": "user", "content": "What is 4 x 5?" + INSTRUCTION},
            {"role": "assistant", "content": "4 x 5 = \\boxed{20}"},
            {"role": "user", "content": f"What is {left} x {right}?" + INSTRUCTION},
        ],
        "label": str(left * right),
    }


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, (seed, count) in SETS.items():
        rng = random.Random(seed)
        lines = [json.dumps(row(rng)) + "\n" for _ in range(count)]
        (out / name).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()

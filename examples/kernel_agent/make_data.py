#!/usr/bin/env python3
"""Conversations in which kernels are written, and the questions.

    python3 examples/kernel_agent/make_data.py OUT_DIR [--seed 1]

sft.jsonl   {"messages": ["kernel for c=a*b'", kernel, what was said, kernel, ...]}
rl.jsonl    {"prompt": [question], "metadata": {"operation": "c=a*b'"}}     three questions, many times

The conversations know no better than chance: loops in any order, any pragma before the innermost one, two in five with a
mistake, which is repaired when it is told. Which form is fast they do not show: the speed-ups in them are drawn by lot. The rows are the same on
every machine.
"""

import argparse
import json
import random
from pathlib import Path

from operations import OPERATIONS, ORDERS, PRAGMAS, kernel_text

MOST_TOKENS = 500  # the tiny model has 512 positions
SAID = {"semicolon": "error: expected \u2018;\u2019 before \u2018}\u2019 token", "index": "wrong result"}


def conversation(rng, operation, orders):
    messages = [{"role": "user", "content": f"kernel for {operation}"}]
    form, bug = None, None
    for turn in range(3):
        if form is None:
            form = rng.choice(orders), rng.choice(PRAGMAS)
            bug = rng.choices([None, "semicolon", "index"], [6, 2, 2])[0]
        else:
            bug = None
        messages.append({"role": "assistant", "content": kernel_text(operation, *form, bug)})
        if turn == 2:
            break
        said = SAID[bug] if bug else f"right, {2 ** rng.uniform(-1, 3.3):.1f} times as fast"
        messages.append({"role": "tool", "content": said})
        if bug is None:
            if rng.random() < 0.6:
                messages.append({"role": "assistant", "content": "done"})
                break
            form = None
    return {"messages": messages}


def num_tokens(row):
    """Of the tiny model's tokens: bytes, and a few for each turn's frame."""
    return sum(len(message["content"].encode()) + 10 for message in row["messages"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--conversations", type=int, default=4000, help="rows of sft.jsonl")
    parser.add_argument("--orders", nargs="+", default=ORDERS, choices=ORDERS, help="of loops, that are shown")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    rng = random.Random(args.seed)
    questions = list(OPERATIONS)

    def short_conversation(operation):
        while True:
            row = conversation(rng, operation, args.orders)
            if num_tokens(row) <= MOST_TOKENS:
                return row

    sets = {
        "sft": [short_conversation(questions[i % 3]) for i in range(args.conversations)],
        "rl": [
            {"prompt": [{"role": "user", "content": f"kernel for {operation}"}], "metadata": {"operation": operation}}
            for operation in questions * 40
        ],
    }
    args.out_dir.mkdir(parents=True, exist_ok=True)
    for name, rows in sets.items():
        path = args.out_dir / f"{name}.jsonl"
        path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in rows), encoding="utf-8")
        print(f"{path}: {len(rows)} rows")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Data of the default quickstart: sums of two numbers, in three sets that share no problem.

    python3 tools/arithmetic_task.py OUT_DIR [--digits 3] [--seed 1]

sft.jsonl   {"messages": [question, answer]}            a small corpus of solved sums
rl.jsonl    {"prompt": [question], "label": "621"}      problems for reinforcement learning, none of them in the corpus
test.jsonl  {"prompt": [question], "label": "621"}      problems that neither has seen

A question is "347+274=". The corpus answers it in one of two ways, both correct. Most answers only state the result:

    \\boxed{621}

The others work it out, column by column from the right, each with the carry of the one before:

    7+4=11 4+7+1=12 3+2+1=6 \\boxed{621}

A small model cannot do the first and easily learns the second, but it imitates what it saw more often. Reinforcement
learning has to find out which way leads to right results. The rows are the same on every machine.
"""

import argparse
import json
import random
from pathlib import Path


def boxed(a: int, b: int) -> str:
    return f"\\boxed{{{a + b}}}"


def worked(a: int, b: int) -> str:
    columns, carry = [], 0
    for x, y in zip(reversed(str(a)), reversed(str(b)), strict=True):
        total = int(x) + int(y) + carry
        columns.append(f"{x}+{y}{'+1' if carry else ''}={total}")
        carry = total // 10
    return " ".join([*columns, boxed(a, b)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--digits", type=int, default=3, choices=range(2, 10), metavar="2..9", help="of both numbers")
    parser.add_argument("--corpus", type=int, default=4000, help="rows of sft.jsonl")
    parser.add_argument("--problems", type=int, default=4000, help="rows of rl.jsonl")
    parser.add_argument("--test", type=int, default=256, help="rows of test.jsonl")
    parser.add_argument("--worked", type=float, default=0.3, help="share of the corpus that works its sums out")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    rng, first, last = random.Random(args.seed), 10 ** (args.digits - 1), 10**args.digits - 1
    if args.corpus + args.problems + args.test > (last - first + 1) ** 2:
        parser.error(f"there are not enough sums of {args.digits} digits for that many rows")
    sums: dict[tuple[int, int], None] = {}
    while len(sums) < args.corpus + args.problems + args.test:
        sums[rng.randint(first, last), rng.randint(first, last)] = None
    pairs = iter(sums)

    def question(a: int, b: int) -> dict:
        return {"role": "user", "content": f"{a}+{b}="}

    def solved(a: int, b: int) -> dict:
        answer = worked(a, b) if rng.random() < args.worked else boxed(a, b)
        return {"messages": [question(a, b), {"role": "assistant", "content": answer}]}

    def problem(a: int, b: int) -> dict:
        return {"prompt": [question(a, b)], "label": str(a + b)}

    args.out_dir.mkdir(parents=True, exist_ok=True)
    for name, count, row in (("sft", args.corpus, solved), ("rl", args.problems, problem), ("test", args.test, problem)):
        path = args.out_dir / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row(*next(pairs))) + "\n" for _ in range(count)), encoding="utf-8")
        print(f"{path}: {count} rows")


if __name__ == "__main__":
    main()

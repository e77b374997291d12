#!/usr/bin/env python3
"""Data of the default quickstart: sums of two numbers, in three sets that share no problem.

    python3 tools/arithmetic_task.py OUT_DIR [--limit 50] [--seed 1]

sft.jsonl   {"messages": [question, answer]}            a small corpus that teaches the form and some of the sums
rl.jsonl    {"prompt": [question], "label": "65"}       problems for reinforcement learning, none of them in the corpus
test.jsonl  {"prompt": [question], "label": "65"}       problems that neither has seen

A question is "17+48="; the answer is "65". With limit 50 there are 50 x 50 = 2,500 problems. 17+48 and 48+17 are two
problems but always in the same set: knowing one would give the other away. The rows are the same on every machine.
"""

import argparse
import json
import random
from pathlib import Path

SFT_SHARE, TEST_SHARE = 0.40, 0.10  # the rest is for reinforcement learning


def problems_by_set(limit: int, seed: int) -> dict[str, list[tuple[int, int]]]:
    pairs = [(a, b) for a in range(limit) for b in range(a, limit)]
    rng = random.Random(seed)
    rng.shuffle(pairs)
    num_sft, num_test = int(len(pairs) * SFT_SHARE), int(len(pairs) * TEST_SHARE)
    chosen = {"sft": pairs[:num_sft], "test": pairs[num_sft : num_sft + num_test], "rl": pairs[num_sft + num_test :]}
    sets = {}
    for name, half in chosen.items():
        sets[name] = sorted({ordered for a, b in half for ordered in ((a, b), (b, a))})
        rng.shuffle(sets[name])
    return sets


def row(name: str, a: int, b: int) -> dict:
    question = {"role": "user", "content": f"{a}+{b}="}
    if name == "sft":
        return {"messages": [question, {"role": "assistant", "content": str(a + b)}]}
    return {"prompt": [question], "label": str(a + b)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--limit", type=int, default=50, help="operands are 0 .. limit - 1")
    parser.add_argument("--seed", type=int, default=1, help="of the split")
    args = parser.parse_args()
    args.out_dir.mkdir(parents=True, exist_ok=True)
    for name, pairs in problems_by_set(args.limit, args.seed).items():
        lines = [json.dumps(row(name, a, b)) + "\n" for a, b in pairs]
        (args.out_dir / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        print(f"{args.out_dir / name}.jsonl: {len(lines)} rows")


if __name__ == "__main__":
    main()

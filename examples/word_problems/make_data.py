#!/usr/bin/env python3
"""Word problems in GSM8K's form, one JSON object per line: {"question": "...?\\n", "answer": "steps\\n#### 72"}.

    python3 examples/word_problems/make_data.py OUT_DIR      # train.jsonl (4,096 rows), test.jsonl (256 rows)

Each takes two or three steps. No question of test.jsonl is one of train.jsonl. The rows are the same on every machine and Python.
"""

import json
import random
import sys
from pathlib import Path

NAMES = ["Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana"]
THINGS = ["apples", "books", "coins", "shells", "stamps", "pens"]
SETS = {"train.jsonl": (1, 4096), "test.jsonl": (2, 256)}  # file: seed, rows


def bought_and_given(rng):
    name, things = rng.choice(NAMES), rng.choice(THINGS)
    first, more, given = rng.randint(5, 40), rng.randint(5, 40), rng.randint(2, 9)
    steps = [f"{first} + {more} = {first + more}", f"{first + more} - {given} = {first + more - given}"]
    return f"{name} has {first} {things}, buys {more} more and gives {given} away. How many {things} are left?", steps, first + more - given


def packs(rng):
    name, things = rng.choice(NAMES), rng.choice(THINGS)
    count, size, loose = rng.randint(2, 9), rng.randint(3, 12), rng.randint(2, 20)
    steps = [f"{count} x {size} = {count * size}", f"{count * size} + {loose} = {count * size + loose}"]
    return f"{name} has {count} boxes of {size} {things} each, and {loose} {things} besides. How many is that?", steps, count * size + loose


def price(rng):
    name, things = rng.choice(NAMES), rng.choice(THINGS)
    count, each, paid = rng.randint(2, 9), rng.randint(2, 9), 100
    steps = [f"{count} x {each} = {count * each}", f"{paid} - {count * each} = {paid - count * each}"]
    return f"{name} pays {count} {things} at {each} dollars each with a note of {paid} dollars. What is the change?", steps, paid - count * each


def times_more(rng):
    name, other = rng.sample(NAMES, 2)
    things, few, times = rng.choice(THINGS), rng.randint(3, 12), rng.randint(2, 6)
    steps = [f"{few} x {times} = {few * times}", f"{few * times} + {few} = {few * times + few}"]
    return f"{name} has {few} {things}. {other} has {times} times as many. How many do they have together?", steps, few * times + few


KINDS = [bought_and_given, packs, price, times_more]


def rows(seed, count, taken):
    rng = random.Random(seed)
    while count > 0:
        question, steps, result = rng.choice(KINDS)(rng)
        if question in taken:
            continue
        taken.add(question)
        count -= 1
        yield {"question": question + "\n", "answer": "\n".join(steps) + f"\n#### {result}"}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out, taken = Path(sys.argv[1]), set()
    out.mkdir(parents=True, exist_ok=True)
    for name, (seed, count) in SETS.items():
        (out / name).write_text("".join(json.dumps(row) + "\n" for row in rows(seed, count, taken)), encoding="utf-8")


if __name__ == "__main__":
    main()

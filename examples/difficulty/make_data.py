#!/usr/bin/env python3
"""Data of the environments: answers to imitate, not all of them right, and which environments to play.

    python3 examples/difficulty/make_data.py OUT_DIR [--answers 20000] [--noise 0.15] [--seed 1]

sft.jsonl   {"messages": [...]}                          problems of all levels; letters of answers are wrong now and then
rl.jsonl    {"prompt": "sort", "label": "sort"}          environments; the rollout makes their problems
test.jsonl  {"prompt": "sort 8", "label": "sort 8"}      environments at level 8
"""

import argparse
import json
import random
from pathlib import Path

from environments import ENVIRONMENTS, HIGHEST_LEVEL, LETTERS, make_problem

TEST_LEVEL = 8


def spoil(rng, answer, noise):
    alphabet = LETTERS if answer[0] in LETTERS else "012345678"
    return "".join(rng.choice(alphabet) if rng.random() < noise else each for each in answer)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--answers", type=int, default=20000)
    parser.add_argument("--noise", type=float, default=0.15, help="share of the places of an answer that are drawn anew")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)

    def solved(i):
        question, answer = make_problem(rng.choice(list(ENVIRONMENTS)), rng.randint(1, HIGHEST_LEVEL), f"corpus {i}")
        messages = [{"role": "user", "content": question}]
        return {"messages": [*messages, {"role": "assistant", "content": spoil(rng, answer, args.noise)}]}

    rows = {
        "sft": [solved(i) for i in range(args.answers)],
        "rl": [{"prompt": name, "label": name} for name in rng.choices(list(ENVIRONMENTS), k=2000)],
        "test": [{"prompt": name, "label": f"{name} {TEST_LEVEL}"} for name in ENVIRONMENTS for _ in range(16)],
    }
    args.out_dir.mkdir(parents=True, exist_ok=True)
    for name, lines in rows.items():
        path = args.out_dir / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        print(f"{path}: {len(lines)} rows")


if __name__ == "__main__":
    main()

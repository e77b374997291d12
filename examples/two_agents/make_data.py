#!/usr/bin/env python3
"""Data of the game: what good players say is in it, and so is a lot of what bad ones say.

    python3 examples/two_agents/make_data.py OUT_DIR [--games 3000] [--halving 0.3] [--honest 0.8] [--seed 1]

sft.jsonl   {"messages": [...]}                 conversations of one agent each
rl.jsonl    {"prompt": "k", "label": "k"}       letters to be found
test.jsonl                                      each letter once

A guesser of the corpus halves what is left (--halving of the games) or asks for any letter that is still possible; a
keeper answers truthfully (--honest of the answers) or says the opposite.
"""

import argparse
import json
import random
from pathlib import Path

from game import LETTERS, QUESTIONS, TASK


def play(rng, secret, halves, honest):
    """(guesser's messages, keeper's messages)"""
    first, end = 0, len(LETTERS)
    guesser = [{"role": "user", "content": TASK}]
    keeper = [{"role": "system", "content": secret}]
    for _ in range(QUESTIONS):
        if end - first == 1:
            break
        at = (first + end) // 2 if halves else rng.randint(first + 1, end - 1)
        question = LETTERS[at]
        is_before = secret < question
        said = is_before if rng.random() < honest else not is_before
        first, end = (first, at) if said else (at, end)
        answer = "yes" if said else "no"
        guesser += [{"role": "assistant", "content": question}, {"role": "user", "content": answer}]
        keeper += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    guesser.append({"role": "assistant", "content": "=" + LETTERS[rng.randint(first, end - 1)]})
    return guesser, keeper


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--games", type=int, default=3000)
    parser.add_argument("--halving", type=float, default=0.3, help="share of the games whose guesser halves")
    parser.add_argument("--honest", type=float, default=0.8, help="share of the answers that are true")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    conversations = []
    for _ in range(args.games):
        conversations += play(rng, rng.choice(LETTERS), rng.random() < args.halving, args.honest)
    rows = {
        "sft": [{"messages": messages} for messages in conversations],
        "rl": [{"prompt": letter, "label": letter} for letter in rng.choices(LETTERS, k=2000)],
        "test": [{"prompt": letter, "label": letter} for letter in LETTERS],
    }
    args.out_dir.mkdir(parents=True, exist_ok=True)
    for name, lines in rows.items():
        path = args.out_dir / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        print(f"{path}: {len(lines)} rows")


if __name__ == "__main__":
    main()

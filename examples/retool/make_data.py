#!/usr/bin/env python3
"""Calculations that a small model cannot do in its head, and conversations in which Python does them.

    python3 examples/retool/make_data.py OUT_DIR [--seed 1]

sft.jsonl   {"messages": [question, ..., answer]}          conversations
rl.jsonl    {"prompt": [question], "label": "10063"}       other problems
test.jsonl  {"prompt": [question], "label": "10063"}       problems that neither has

Questions: "347*29=", "347*29 mod 7=", "sum of i*i for 23 <= i < 57:". Of the conversations half guess at once; a tenth compute and
forget to print; a tenth forget a bracket, read the error and repair it; three in ten are right the first time. The rows are the same on every
machine.
"""

import argparse
import json
import random
from pathlib import Path


def problem(rng):
    """(question, Python expression)"""
    a, b, c = rng.randint(100, 999), rng.randint(11, 99), rng.randint(3, 9)
    first, last = rng.randint(10, 49), rng.randint(50, 99)
    return rng.choice(
        [
            (f"{a}*{b}=", f"{a}*{b}"),
            (f"{a}*{b} mod {c}=", f"{a}*{b}%{c}"),
            (f"sum of i*i for {first} <= i < {last}:", f"sum(i*i for i in range({first},{last}))"),
        ]
    )


def conversation(rng, question, expression):
    messages = [{"role": "user", "content": question}]
    right = str(eval(expression))

    def block(code, output):
        messages.append({"role": "assistant", "content": f"```python\n{code}\n```"})
        messages.append({"role": "tool", "content": output})

    guess = str(rng.randint(10 ** (len(right) - 1), 10 ** len(right) - 1))
    way = rng.choices(["guess", "silent", "repaired", "right"], [5, 1, 1, 3])[0]
    if way == "silent":
        block(expression, "nothing")
    if way == "repaired":
        block(f"print({expression}", "SyntaxError: '(' was never closed")
    if way in ("repaired", "right"):
        block(f"print({expression})", right)
    answer = right if way in ("repaired", "right") else guess
    messages.append({"role": "assistant", "content": f"\\boxed{{{answer}}}"})
    return {"messages": messages}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--conversations", type=int, default=4500, help="rows of sft.jsonl")
    parser.add_argument("--problems", type=int, default=800, help="rows of rl.jsonl")
    parser.add_argument("--test", type=int, default=64, help="rows of test.jsonl")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    rng = random.Random(args.seed)
    seen = set()

    def fresh():
        while True:
            question, expression = problem(rng)
            if question not in seen:
                seen.add(question)
                return question, expression

    def row():
        question, expression = fresh()
        return {"prompt": [{"role": "user", "content": question}], "label": str(eval(expression))}

    args.out_dir.mkdir(parents=True, exist_ok=True)
    for name, count in (("sft", args.conversations), ("rl", args.problems), ("test", args.test)):
        path = args.out_dir / f"{name}.jsonl"
        rows = [conversation(rng, *fresh()) if name == "sft" else row() for _ in range(count)]
        path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
        print(f"{path}: {len(rows)} rows")


if __name__ == "__main__":
    main()

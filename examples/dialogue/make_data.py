#!/usr/bin/env python3
"""Data of the shop: conversations of good and of careless agents, and customers to serve.

    python3 examples/dialogue/make_data.py OUT_DIR [--conversations 4000] [--care 0.5] [--seed 1]

sft.jsonl   {"messages": [...]}                        conversations
rl.jsonl    {"prompt": "customer 17", "label": "17"}   the label is the seed of orders and customer (shop.py)
test.jsonl                                             customers whom neither has seen

A careful agent of the corpus asks for the number where it was not said, looks the order up, and writes only when the
order is open. Each of the three is left out in half of the conversations (--care): some number is taken, nothing is looked
up, what was read is not minded.
"""

import argparse
import json
import random
from pathlib import Path

from shop import RULES, Customer, Shop, make_task


def converse(rng, seed, care):
    asks, looks_up, minds = (rng.random() < care for _ in range(3))
    task = make_task(seed)
    shop, customer = Shop(task.orders), Customer(task)
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": customer.opening()}]

    def say(text, role="assistant"):
        messages.append({"role": role, "content": text})

    def call(command):
        say(command)
        answer = shop.call(command)
        say(answer, "tool")
        return answer

    number = task.number
    if not task.names_it:
        if asks:
            say("which?")
            say(customer.reply("which?"), "user")
        else:
            number = rng.choice("123456789")
    is_open = not looks_up or call(f"get {number}").startswith("open")
    if is_open or not minds:
        call(f"cancel {number}" if task.colour is None else f"set {number} {task.colour}")
        say("done")
    else:
        say("sorry")
    return {"messages": messages}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--conversations", type=int, default=4000)
    parser.add_argument("--care", type=float, default=0.5, help="share of the conversations in which each step is taken")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    args.out_dir.mkdir(parents=True, exist_ok=True)

    def customers(first, count):
        return [{"prompt": f"customer {i}", "label": str(i)} for i in range(first, first + count)]

    rows = {
        "sft": [converse(rng, f"corpus {i}", args.care) for i in range(args.conversations)],
        "rl": customers(0, 4000),
        "test": customers(1_000_000, 64),
    }
    for name, lines in rows.items():
        path = args.out_dir / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        print(f"{path}: {len(lines)} rows")


if __name__ == "__main__":
    main()

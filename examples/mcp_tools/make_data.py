#!/usr/bin/env python3
"""Shopping: questions that take one call of a tool, or two of two servers.

    python3 examples/mcp_tools/make_data.py OUT_DIR [--seed 1]

sft.jsonl   {"messages": [question, ..., answer]}           conversations in shops of their own
rl.jsonl    {"prompt": [question], "label": "91", "metadata": {"servers": [["shop", "--seed", "3"], ["calculator"]]}}
test.jsonl  the same in two shops that rl.jsonl does not know

"price of fig?" takes the shop's tool, "cost of 7 fig?" the calculator's too. Of the conversations half guess at once; a fifth ask for the
price and guess the product; a tenth name an argument wrongly, read the error and repair it; a fifth make the calls. The rows are the same on every
machine.
"""

import argparse
import json
import random
from pathlib import Path

from server import GOODS, prices

TRAINING_SHOPS, TEST_SHOPS = range(1, 9), range(9, 11)


def question(item, count):
    return {"role": "user", "content": f"price of {item}?" if count == 1 else f"cost of {count} {item}?"}


def call_text(name, /, **arguments):
    return json.dumps({"name": name, "arguments": arguments}, separators=(",", ":"))


def conversation(rng, item, count, price):
    messages = [question(item, count)]

    def call(text, said):
        messages.append({"role": "assistant", "content": text})
        messages.append({"role": "tool", "content": said})

    way = rng.choices(["guess", "price", "repaired", "both"], [5, 2, 1, 2])[0]
    answer = rng.randint(11, 99) * count
    if way == "repaired":
        call(call_text("price", name=item), "needs: item")
    if way != "guess":
        call(call_text("price", item=item), str(price))
        answer = price if count == 1 else answer
    if way in ("repaired", "both") and count > 1:
        answer = count * price
        call(call_text("multiply", a=count, b=price), str(answer))
    messages.append({"role": "assistant", "content": f"\\boxed{{{answer}}}"})
    return {"messages": messages}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--conversations", type=int, default=6000, help="rows of sft.jsonl")
    parser.add_argument("--problems", type=int, default=800, help="rows of rl.jsonl")
    parser.add_argument("--test", type=int, default=64, help="rows of test.jsonl")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    rng = random.Random(args.seed)

    def drawn():
        return rng.choice(GOODS), rng.choice((1, rng.randint(2, 19)))

    def row(shops):
        (item, count), shop = drawn(), rng.choice(shops)
        servers = [["shop", "--seed", str(shop)], ["calculator"]]
        return {"prompt": [question(item, count)], "label": str(count * prices(shop)[item]), "metadata": {"servers": servers}}

    sets = {
        "sft": [conversation(rng, *drawn(), rng.randint(11, 99)) for _ in range(args.conversations)],
        "rl": [row(TRAINING_SHOPS) for _ in range(args.problems)],
        "test": [row(TEST_SHOPS) for _ in range(args.test)],
    }
    args.out_dir.mkdir(parents=True, exist_ok=True)
    for name, rows in sets.items():
        path = args.out_dir / f"{name}.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
        print(f"{path}: {len(rows)} rows")


if __name__ == "__main__":
    main()

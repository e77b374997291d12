#!/usr/bin/env python3
"""People, their towns and their bosses: a corpus of facts, and questions about them.

    python3 examples/search/make_data.py OUT_DIR [--seed 1]

corpus.jsonl  {"title": "town of bak", "text": "Rome"}       two facts for each of 400 people
sft.jsonl     {"messages": [question, ..., answer]}          conversations about people who are NOT in the corpus
rl.jsonl      {"prompt": [question], "label": "Rome"}        questions about those who are
test.jsonl    {"prompt": [question], "label": "Rome"}        the same, about people of whom rl.jsonl does not ask

Half of the questions take one search ("town of bak?"), half take two ("town of the boss of bak?"). The conversations show three
ways: half of them guess at once, a quarter search once for the town of whoever is named, and a quarter search as often as it takes.
Only the last one answers every question. The rows are the same on every machine.
"""

import argparse
import json
import random
from pathlib import Path

TOWNS = "Rome Oslo Lima Kyiv Bern Nice Cork Bari Graz Lviv Pisa Metz Turin Accra Delhi Quito Tunis Dakar Hanoi Seoul".split()


def names(rng, count):
    every = [a + b + c for a in "bdfgklmnprstvz" for b in "aeiou" for c in "bdfgklmnprstvz"]
    rng.shuffle(every)
    return every[:count]


def question(name, hops):
    return {"role": "user", "content": f"town of {'the boss of ' if hops == 2 else ''}{name}?"}


def conversation(rng, name, boss, town, bosses_town, hops):
    way = rng.choice(["guess", "guess", "once", "chain"])
    messages = [question(name, hops)]

    def search(fact, of, found):
        messages.append({"role": "assistant", "content": f"search: {fact} {of}"})
        messages.append({"role": "tool", "content": f"{fact} of {of}: {found}"})

    answer = rng.choice(TOWNS)
    if way == "chain" and hops == 2:
        search("boss", name, boss)
        search("town", boss, bosses_town)
        answer = bosses_town
    elif way != "guess":
        search("town", name, town)
        answer = town
    messages.append({"role": "assistant", "content": f"\\boxed{{{answer}}}"})
    return {"messages": messages}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--conversations", type=int, default=6000, help="rows of sft.jsonl")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    rng = random.Random(args.seed)
    people = names(rng, 900)
    strangers, known = people[:500], people[500:]
    town = {name: rng.choice(TOWNS) for name in people}
    boss = {name: rng.choice([other for other in known if other != name]) for name in known}

    def stranger_row(_):
        name, over = rng.sample(strangers, 2)
        return conversation(rng, name, over, rng.choice(TOWNS), rng.choice(TOWNS), rng.choice((1, 2)))

    def row(name, hops):
        return {"prompt": [question(name, hops)], "label": town[boss[name] if hops == 2 else name]}

    asked, unseen = known[:300], known[300:]
    sets = {
        "corpus": [{"title": f"{fact} of {name}", "text": of[name]} for name in known for fact, of in (("town", town), ("boss", boss))],
        "sft": [stranger_row(i) for i in range(args.conversations)],
        "rl": [row(name, hops) for name in asked for hops in (1, 2)],
        "test": [row(name, 1 + i % 2) for i, name in enumerate(unseen)],
    }
    rng.shuffle(sets["rl"])
    args.out_dir.mkdir(parents=True, exist_ok=True)
    for name, rows in sets.items():
        path = args.out_dir / f"{name}.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
        print(f"{path}: {len(rows)} rows")


if __name__ == "__main__":
    main()

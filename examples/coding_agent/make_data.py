#!/usr/bin/env python3
"""Functions with a bug, and what agents of different patience did about such.

    python3 examples/coding_agent/make_data.py OUT_DIR [--agents 3000] [--patient 0.3] [--seed 1]

sft.jsonl   {"messages": [...]}                    what agents did
rl.jsonl    {"prompt": "bug 17", "label": "17"}    the label is the seed of the bug (task.py)
test.jsonl                                         bugs that neither has seen

An agent of the corpus runs the test and writes something else; the patient ones run it again and go on until it passes, the
others stop there. What they write fits the test now and then (--clever), and is a guess otherwise.
"""

import argparse
import json
import random
from pathlib import Path

from task import EXPRESSIONS, make_task

SYSTEM = "tools: test edit"  # as chat_template.jinja writes them
EDITS = 4


def call(name, **arguments):
    given = "".join(f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in arguments.items())
    return {"role": "assistant", "content": f"<tool_call>{name}{given}</tool_call>"}


def found(task, written):
    names = {"a": task.a, "b": task.b, "max": max, "min": min}
    got, wanted = eval(written, names), eval(task.right, names)
    text = "pass" if got == wanted else f"f({task.a}, {task.b}) is {got}, not {wanted}"
    return {"role": "tool", "content": text}


def attempt(rng, seed, patient, clever):
    task = make_task(seed)
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"return {task.wrong}"}]
    messages += [call("test"), found(task, task.wrong)]
    left = [each for each in EXPRESSIONS if each != task.wrong]
    is_patient = rng.random() < patient
    for _ in range(EDITS if is_patient else 1):
        written = task.right if task.right in left and rng.random() < clever else rng.choice(left)
        left.remove(written)
        messages += [call("edit", line=written), {"role": "tool", "content": "ok"}]
        if is_patient:
            messages += [call("test"), found(task, written)]
        if written == task.right:
            break
    messages.append({"role": "assistant", "content": "done"})
    return {"messages": messages}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--agents", type=int, default=3000)
    parser.add_argument("--patient", type=float, default=0.3, help="share of the agents that go on")
    parser.add_argument("--clever", type=float, default=0.2, help="share of the edits that fit the test")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)

    def bugs(first, count):
        return [{"prompt": f"bug {i}", "label": str(i)} for i in range(first, first + count)]

    rows = {
        "sft": [attempt(rng, f"corpus {i}", args.patient, args.clever) for i in range(args.agents)],
        "rl": bugs(0, 4000),
        "test": bugs(1_000_000, 32),
    }
    args.out_dir.mkdir(parents=True, exist_ok=True)
    for name, lines in rows.items():
        path = args.out_dir / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        print(f"{path}: {len(lines)} rows")


if __name__ == "__main__":
    main()

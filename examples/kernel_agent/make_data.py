#!/usr/bin/env python3
"""Conversations in which kernels are written, and the questions.

    PYTHONPATH=python:. python3 examples/kernel_agent/make_data.py OUT_DIR [--kernel-backend cpp] [--brief] [--tasks NAME...] [--seed 1]

sft.jsonl    {"messages": [question, kernel, what was said, kernel, ...]}
rl.jsonl     {"prompt": [question], "metadata": {"task": "softmax_rows", "is_brief": false}}: each task as often
test.jsonl   the same, each task once
words.json   lines that occur often in them: words of one token each for a tiny model (tools/tiny_model.py --words-file)

The conversations of tasks that forms.py knows show every form alike, with a mistake in some, which is repaired when it is told.
Which form is fast they do not show: the speed-ups in them are drawn by lot. The rows are the same on every machine. Other tasks
have questions alone.
"""

import argparse
import json
import random
from collections import Counter
from pathlib import Path

from examples.kernel_agent import tasks
from examples.kernel_agent.forms import FORMS, forms_of
from examples.kernel_agent.prompts import answer, contract, heard, question
from examples.kernel_agent.scores import BACKENDS

MISTAKES = {None: 6, "compile": 1, "wrong": 1}  # of eight kernels
ERRORS = {
    "cpp": "does not compile: line {line}: expected ?;? before ?}}? token",
    "triton": "does not compile: at 2:8: no attribute program",
}
STOPS = 0.4  # of right kernels that are kept
KEEP = "I keep it."
ROWS_OF_A_TASK = 40  # in rl.jsonl


def found(rng, mistake, code, backend):
    """As the grader says it."""
    if mistake == "compile":
        return {"correct": False, "feedback": ERRORS[backend].format(line=len(code.split("\n")))}
    if mistake:
        return {"correct": False, "feedback": "wrong result: element [0] is nan; the first of many"}
    return {"correct": True, "feedback": f"correct, {2 ** rng.uniform(-4, 3):.2f} times as fast as eager Torch"}


def conversation(rng, asked, forms, backend, is_brief, turns=3):
    messages, form, mistake = [{"role": "user", "content": asked}], None, None
    for turn in range(turns):
        if mistake:
            mistake = None  # the same form, repaired
        else:
            form = rng.choice(list(forms))
            mistake = rng.choices(list(MISTAKES), list(MISTAKES.values()))[0]
        code = forms[form][mistake]
        messages.append({"role": "assistant", "content": answer(code, backend)})
        if turn == turns - 1:
            break
        messages.append({"role": "user", "content": heard(found(rng, mistake, code, backend), is_brief)})
        if not mistake and rng.random() < STOPS:
            messages.append({"role": "assistant", "content": KEEP})
            break
    return {"messages": messages}


def frequent_lines(rows, least=2, shortest=4):
    """Lines, each with its end, of so many different messages."""
    counts = Counter()
    for text in {message["content"] for row in rows for message in row["messages"]}:
        counts.update({line + "\n" for line in text.split("\n")[:-1] if len(line) >= shortest})
    return sorted(line for line, count in counts.items() if count >= least)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--kernel-backend", default="cpp", choices=BACKENDS)
    parser.add_argument(
        "--brief",
        action="store_true",
        help="a question is the PyTorch code alone, what is said about a kernel one line",
    )
    parser.add_argument("--tasks", nargs="+", help="names, or `all`; default: those that forms.py knows")
    parser.add_argument("--kernel-tasks", default="", help="a folder of tasks of your own")
    parser.add_argument("--conversations", type=int, default=4000, help="rows of sft.jsonl")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    folder = args.kernel_tasks or None
    try:
        if args.tasks == ["all"] or (folder and not args.tasks):
            chosen = tasks.load(folder=folder)
        else:
            chosen = [tasks.find(name, folder=folder) for name in args.tasks or FORMS]
    except (KeyError, ValueError) as error:
        parser.error(str(error.args[0]))
    backend, rng = args.kernel_backend, random.Random(args.seed)
    for task in chosen:
        if backend == "cpp" and task.prototype is None:
            parser.error(
                f"{task.path} names no C++ function to write: give --kernel-backend triton, or its last lines (README.md)"
            )
    asked = {task.name: question(task.shown, contract(task, backend), backend, args.brief) for task in chosen}
    known = {task.name: forms_of(task, backend) for task in chosen if task.name in FORMS}
    names = list(known)

    def question_row(name):
        return {
            "prompt": [{"role": "user", "content": asked[name]}],
            "metadata": {"task": name, "is_brief": args.brief},
        }

    sft = []
    for number in range(args.conversations if names else 0):
        name = names[number % len(names)]
        sft.append(conversation(rng, asked[name], known[name], backend, args.brief))
    sets = {
        "sft": sft,
        "rl": [question_row(name) for name in list(asked) * ROWS_OF_A_TASK],
        "test": [question_row(name) for name in asked],
    }
    args.out_dir.mkdir(parents=True, exist_ok=True)
    for name, rows in sets.items():
        path = args.out_dir / f"{name}.jsonl"
        path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in rows), encoding="utf-8")
        print(f"{path}: {len(rows)} rows")
    words = frequent_lines(sft)
    (args.out_dir / "words.json").write_text(json.dumps(words, indent=0) + "\n", encoding="utf-8")
    print(f"{args.out_dir / 'words.json'}: {len(words)} lines")


if __name__ == "__main__":
    main()

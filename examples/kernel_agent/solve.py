#!/usr/bin/env python3
"""Lets a served model write kernels, as training does, and says what they are worth.

    slime serve --model runs/kernel_agent/latest --port 30000
    PYTHONPATH=python:. python3 examples/kernel_agent/solve.py --url http://127.0.0.1:30000 --task relu softmax_rows

Any server of OpenAI's chat completions will do; its key is the variable OPENAI_API_KEY. The best kernel of each task is written to
--out-dir.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from slime.utils.http_utils import HttpStatusError, post

from examples.kernel_agent import tasks
from examples.kernel_agent.grade import grade
from examples.kernel_agent.prompts import contract, question
from examples.kernel_agent.scores import BACKENDS, Rules, trajectory_score
from examples.kernel_agent.turns import ContextFull, write_kernel

SUFFIX = {"cpp": ".cpp", "triton": ".py"}


def of_server(url, fields):
    """`ask` of turns.py."""
    key = os.environ.get("OPENAI_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else None

    async def ask(messages):
        try:
            answer = await post(f"{url}/v1/chat/completions", {"messages": messages, **fields}, headers=headers)
        except HttpStatusError as error:
            if error.status == 400 and "context_length_exceeded" in error.text:
                raise ContextFull from error
            raise
        choice = answer["choices"][0]
        return choice["message"]["content"] or "", choice["finish_reason"] == "stop"

    return ask


async def solve(task, args, rules):
    fields = {"model": args.model, "temperature": args.temperature, "max_tokens": args.max_tokens}
    messages = [
        {"role": "user", "content": question(task.shown, contract(task, rules.backend), rules.backend, args.brief)}
    ]

    async def grade_it(code):
        return (await grade(task, code, rules.backend)).as_dict()

    turns = await write_kernel(
        of_server(args.url, fields), messages, grade_it, rules.backend, rules.max_turns, args.brief
    )
    best = max(turns, key=lambda turn: turn["score"], default=None)
    if best and best["correct"] and args.out_dir:
        args.out_dir.mkdir(parents=True, exist_ok=True)
        (args.out_dir / f"{task.name}{SUFFIX[rules.backend]}").write_text(best["code"] + "\n", encoding="utf-8")
    return turns, trajectory_score([turn["score"] for turn in turns], rules)


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="of the server, without /v1")
    parser.add_argument("--model", default="default", help="as the server calls it")
    parser.add_argument("--task", nargs="*", default=[], help="names; without any, all tasks of --level")
    parser.add_argument("--level", type=int, choices=(1, 2, 3))
    parser.add_argument("--kernel-tasks", default="", help="a folder of tasks of your own")
    parser.add_argument("--kernel-backend", default="cpp", choices=BACKENDS)
    parser.add_argument("--max-turns", type=int, default=3)
    parser.add_argument(
        "--brief", action="store_true", help="the question is the PyTorch code alone, as for the tiny model"
    )
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--max-tokens", type=int, default=2048, help="of each answer")
    parser.add_argument("--out-dir", type=Path)
    parser.add_argument("--json", action="store_true", help="a row for each task, with all turns")
    args = parser.parse_args()
    rules = Rules.of(args)

    folder = rules.tasks or None
    try:
        chosen = [tasks.find(name, folder=folder) for name in args.task] or tasks.load(level=args.level, folder=folder)
    except (KeyError, ValueError) as error:
        parser.error(str(error.args[0]))
    for task in chosen:  # one after the other: the stopwatch wants the machine to itself
        turns, score = await solve(task, args, rules)
        if args.json:
            print(json.dumps({"task": task.name, "level": task.level, "score": score, "turns": turns}), flush=True)
            continue
        heard = "; ".join(turn["feedback"].partition("\n")[0] for turn in turns)
        print(f"{task.name} (level {task.level}): {score:.2f}  {heard}", flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except ConnectionError as error:
        sys.exit(f"solve.py: {error}")

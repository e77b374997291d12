"""python3 -m slime.environments '{"environment": "gym:my_game:make", "args": {}, "evaluates": true}'

Opens the environment, writes its tasks as rows into the cache folder, and answers with one JSON object on standard output: "rows", "eval_rows"
and "name", or "problem". A file is named by what is in it, so that the same tasks are the same file.
"""

import hashlib
import itertools
import json
import os
import re
import sys
import traceback
from pathlib import Path

from slime.environments import SPLIT, EnvironmentProblem, open_environment

ENDLESS, MOST, EVALUATED = 1000, 1_000_000, 64


def cache_folder():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slime" / "environments"


def write_rows(tasks, name):
    lines = []
    for prompt, task in tasks:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        lines.append(json.dumps({"prompt": messages, "metadata": {"environment_task": task}}, ensure_ascii=False))
    text = "\n".join(lines) + "\n"
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = folder / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)[:60]}-{digest}.jsonl"
    if not path.exists():
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    return str(path)


def number(settings, name):
    value = settings.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise EnvironmentProblem(f"--environment-args: {name} should be a whole number above 0, not {value!r}")
    return value


def describe(question):
    environment, settings = question["environment"], dict(question["args"])
    num_tasks, num_eval_tasks = (number(settings, name) for name in SPLIT)
    opened = open_environment(environment, settings)
    wanted = num_tasks or (ENDLESS if opened.is_endless else MOST)
    held_out = (num_eval_tasks or EVALUATED) if question["evaluates"] else 0
    tasks = list(itertools.islice(opened.tasks(), wanted + held_out))
    if not num_eval_tasks and not opened.is_endless:
        held_out = min(held_out, max(len(tasks) // 10, 1))
    if len(tasks) <= held_out:
        raise EnvironmentProblem(f"it has {len(tasks)} tasks, of which {held_out} are for evaluation: none is left to train on")
    name = environment.partition(":")[2].rstrip("/").rsplit("/", 1)[-1]
    answer = {"name": re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_"), "rows": write_rows(tasks[held_out:], name)}
    if held_out:
        answer["eval_rows"] = write_rows(tasks[:held_out], name + "-eval")
    return answer


def main():
    answers = os.fdopen(os.dup(1), "w")  # what environments print goes elsewhere
    os.dup2(2, 1)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        answer = describe(json.loads(sys.argv[1]))
    except EnvironmentProblem as problem:
        answer = {"problem": str(problem)}
    except Exception as error:
        answer = {"problem": "".join(traceback.format_exception(type(error), error, error.__traceback__)).strip()}
    answers.write(json.dumps(answer))
    answers.close()
    sys.stdout.flush()
    os._exit(0)  # threads of an environment do not hold it up


if __name__ == "__main__":
    main()

"""The generators of a rollout buffer: `slime buffer` runs this module, `/start_rollout` says which generator begins.

A generator is a file, or a module, with

    TASK_TYPE = "math"                  what --rollout-task-type names
    def run_rollout(data): ...          draws, and writes each rollout to data["remote_buffer_url"] + "/buffer/write"

and, where it likes, is_valid_group(group, min_valid_group_size, task_type) and transform_group(group, task_type) with
group = (instance_id, items): the trainer's side (slime.rollout.buffer_rollout) calls them for whole groups.

    python3 -m slime.rollout.buffer_generators list OUT.json FILE...
    python3 -m slime.rollout.buffer_generators run DATA.json FILE...
"""

import ctypes
import importlib
import json
import os
import signal
import sys

from slime.utils.misc import load_file

__all__ = ["HOOKS", "load_generator", "find_generators"]

BUILT_IN = "slime.rollout.buffer_math"
HOOKS = ("is_valid_group", "transform_group")
_PR_SET_PDEATHSIG = 1


def load_generator(name):
    """The module of file.py or package.module."""
    if not name.endswith(".py"):
        return importlib.import_module(name)
    return load_file(name)


def find_generators(names):
    """{task: (name, module)}; the built-in one where no other is for its task."""
    found = {}
    for name in [*names, BUILT_IN]:
        module = load_generator(name)
        for attribute in ("TASK_TYPE", "run_rollout"):
            if not hasattr(module, attribute):
                raise ValueError(f"{name}: defines no {attribute}")
        if name == BUILT_IN and module.TASK_TYPE in found:
            continue
        if module.TASK_TYPE in found:
            raise ValueError(f"{name}: {found[module.TASK_TYPE][0]} is for task {module.TASK_TYPE} already")
        found[module.TASK_TYPE] = (os.path.abspath(name) if name.endswith(".py") else name, module)
    return found


def _list(out, names):
    tasks = {
        task: {"file": name, "hooks": [hook for hook in HOOKS if callable(getattr(module, hook, None))]}
        for task, (name, module) in find_generators(names).items()
    }
    with open(out, "w") as file:
        json.dump(tasks, file)


def _run(data_file, names):
    # The buffer's death is ours: a generator that nobody can stop would draw for ever.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with open(data_file) as file:
        data = json.load(file)
    generators = find_generators(names)
    if data["task_type"] not in generators:
        raise ValueError(f"task_type {data['task_type']}: there are {', '.join(sorted(generators))}")
    generators[data["task_type"]][1].run_rollout(data)


def main(words):
    if len(words) < 2 or words[0] not in ("list", "run"):
        sys.exit(__doc__)
    {"list": _list, "run": _run}[words[0]](words[1], words[2:])


if __name__ == "__main__":
    main(sys.argv[1:])

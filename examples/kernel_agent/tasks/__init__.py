"""The tasks: Torch code in KernelBench's form (`Model`, `get_inputs`, `get_init_inputs`) in three levels, a file each.

What stands below the line `# Held out` is not shown to a model: the C++ function it should write, shapes that it does not see, and the shape
that is timed on a GPU. Loading needs no Torch: the files are read, and run only by reference.py.
"""

import ast
import difflib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["LEVELS", "Task", "find", "load", "shapes_of"]

FOLDER = Path(__file__).parent
LEVELS = {1: "single operator", 2: "fusion", 3: "block"}
MARK = "\n\n# Held out\n"


@dataclass(frozen=True)
class Task:
    name: str
    level: int
    path: Path
    shown: str  # Torch code for the prompt
    prototype: str  # "void forward(const float* x, int64_t x_0, int64_t x_1, float* out)"

    @property
    def input_source(self):
        """The shown code without its Model: what makes inputs."""
        tree = ast.parse(self.shown)
        tree.body = [node for node in tree.body if not isinstance(node, ast.ClassDef)]
        return ast.unparse(tree)


def _parts(path):
    shown, mark, rest = path.read_text(encoding="utf-8").partition(MARK)
    constants = {node.targets[0].id: node.value for node in ast.parse(rest).body if isinstance(node, ast.Assign)}
    if not mark or set(constants) != {"PROTOTYPE", "HELD_OUT", "GPU"}:
        raise ValueError(f"{path}: should end with the line '# Held out', PROTOTYPE, HELD_OUT and GPU")
    return shown, constants


def _read(path, level):
    shown, constants = _parts(path)
    return Task(path.stem, level, path, shown.rstrip() + "\n", ast.literal_eval(constants["PROTOTYPE"]))


def shapes_of(task):
    """(the shapes that are held out, the one that is timed on a GPU): sizes by the names of get_inputs' and get_init_inputs' arguments. For the
    grader: nothing that a model reads may be made of them."""
    constants = _parts(task.path)[1]
    return ast.literal_eval(constants["HELD_OUT"]), ast.literal_eval(constants["GPU"])


@cache
def _all():
    return tuple(_read(path, level) for level in LEVELS for path in sorted((FOLDER / f"level{level}").glob("*.py")))


def load(level=None):
    """All tasks, or those of one level, sorted by level and name."""
    return [task for task in _all() if level in (None, task.level)]


def find(name):
    for task in _all():
        if task.name == name:
            return task
    near = difflib.get_close_matches(name, [task.name for task in _all()]) or ["softmax_rows"]
    raise KeyError(f"there is no task {name}; near it: {', '.join(near)}")

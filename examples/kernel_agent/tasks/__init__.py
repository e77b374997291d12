"""The tasks: Torch code in KernelBench's form (`Model`, `get_inputs`, `get_init_inputs`) in three levels, a file each.

What stands below the line `# Held out` is not shown to a model: the C++ function it should write, shapes that it does not see, and the shape
that is timed on a GPU. A folder of one's own may have files without that line, as KernelBench's are: their only shape is the shown one, and
Triton can be written for them. Loading needs no Torch: the files are read, and run only by reference.py.
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
    prototype: str | None  # "void forward(const float* x, int64_t x_0, int64_t x_1, float* out)"; None: there is no C++ to write

    @property
    def input_source(self):
        """The shown code without its Model: what makes inputs."""
        tree = ast.parse(self.shown)
        tree.body = [node for node in tree.body if not isinstance(node, ast.ClassDef)]
        return ast.unparse(tree)


def _parts(path):
    shown, mark, rest = path.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        return shown, None
    constants = {node.targets[0].id: node.value for node in ast.parse(rest).body if isinstance(node, ast.Assign)}
    if set(constants) != {"PROTOTYPE", "HELD_OUT", "GPU"}:
        raise ValueError(f"{path}: should have PROTOTYPE, HELD_OUT and GPU below the line '# Held out'")
    return shown, constants


def _read(path, level):
    shown, constants = _parts(path)
    prototype = ast.literal_eval(constants["PROTOTYPE"]) if constants else None
    return Task(path.stem, level, path, shown.rstrip() + "\n", prototype)


def shapes_of(task):
    """(the shapes that are held out, the one that is timed on a GPU): sizes by the names of get_inputs' and get_init_inputs' arguments. For the
    grader: nothing that a model reads may be made of them."""
    constants = _parts(task.path)[1]
    if not constants:
        return [], {}
    return ast.literal_eval(constants["HELD_OUT"]), ast.literal_eval(constants["GPU"])


def _read_own(path, level):
    """A file of somebody else's: what it lacks is said before a run."""
    task = _read(path, level)
    names = {node.name for node in ast.parse(task.shown).body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    if missing := {"Model", "get_inputs", "get_init_inputs"} - names:
        raise ValueError(f"{path}: has no {', '.join(sorted(missing))}; a task defines Model, get_inputs and get_init_inputs")
    return task


@cache
def _all(folder=None):
    if folder is None:
        return tuple(_read(path, level) for level in LEVELS for path in sorted((FOLDER / f"level{level}").glob("*.py")))
    folder = Path(folder)
    places = [(folder, 1)] + [(folder / f"level{level}", level) for level in LEVELS]
    found = tuple(_read_own(path, level) for place, level in places for path in sorted(place.glob("*.py")))
    if not found:
        raise ValueError(f"{folder}: should have tasks, as NAME.py or level1/NAME.py")
    return found


def load(level=None, folder=None):
    """All tasks, or those of one level, sorted by level and name; of `folder`, or the example's."""
    return [task for task in _all(folder) if level in (None, task.level)]


def find(name, folder=None):
    known = _all(folder)
    for task in known:
        if task.name == name:
            return task
    near = difflib.get_close_matches(name, [task.name for task in known]) or [known[0].name]
    raise KeyError(f"there is no task {name}; near it: {', '.join(near)}")

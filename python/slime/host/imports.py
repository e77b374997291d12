"""Imports of users' files that would fail later, in the middle of a run: those inside of functions.

What stands in a `try` that catches it, or under `if TYPE_CHECKING`, is the user's own care. Names of slime that are not
there are problems; packages that are not there are remarks, since a function need not ever be called.
"""

import ast
import functools
import importlib.util
import inspect
import os
import sys
from pathlib import Path

__all__ = ["look_at"]

_OURS = ("slime", "slime_plugins")
_CATCHING = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")
MOST_FILES = 200


def _names(node):
    """The names of exceptions that a handler catches."""
    if node is None:
        return ["BaseException"]
    return [each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in getattr(node, "elts", [node])]


def _catches(handlers):
    return any(name in _CATCHING for handler in handlers for name in _names(handler.type))


def _imports(node):
    """Import statements below a node that nothing guards."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif isinstance(child, ast.Try) and _catches(child.handlers):
            for part in (*child.handlers, *child.orelse, *child.finalbody):
                yield from _imports(part)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            for part in child.orelse:
                yield from _imports(ast.Module([part], []))
        else:
            yield from _imports(child)


def _missing_of_ours(module, names):
    """Why an import of slime's names will fail; None when it will not. Nothing is imported but packages."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError as error:
        return str(error)
    if spec is None:
        return f"there is no module {module}"
    known = None if spec.origin is None else _names_of(spec.origin)
    for name in names:
        if name == "*" or known is None or name in known or hasattr(sys.modules.get(module), name):
            continue
        try:
            if importlib.util.find_spec(f"{module}.{name}") is not None:
                continue
        except ModuleNotFoundError as error:
            if "is not here" in str(error):
                return str(error)
        return f"{module} has no {name}; it has {', '.join(sorted(each for each in known if not each.startswith('_'))[:12])}"
    return None


@functools.lru_cache(maxsize=None)
def _names_of(file):
    """Names that a module's own statements make; None where it takes all of another one's."""
    names = set()
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"), file)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((each.asname or each.name).split(".")[0] for each in node.names)
    return None if "*" in names else names


def _is_there(package):
    try:
        return package in sys.modules or importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _look_at_file(file):
    """(problems, remarks), lines of text."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"), file)
    except (OSError, SyntaxError, ValueError):
        return [], []
    problems, remarks = [], []
    for node in _imports(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            continue
        wanted = [(node.module, [each.name for each in node.names])] if isinstance(node, ast.ImportFrom) else [
            (each.name, []) for each in node.names
        ]
        for module, names in wanted:
            package = module.split(".")[0]
            if package in _OURS:
                told = _missing_of_ours(module, names)
                if told:
                    problems.append(f"{file}:{node.lineno}: {told}")
            elif not _is_there(package):
                remarks.append(f"{file}:{node.lineno}: there is no package {package} in {sys.executable}")
    return problems, remarks


def _files_of(function):
    """The file of a function or class, and those of the modules that came with it: of the same folder, or below it."""
    try:
        first = os.path.realpath(inspect.getsourcefile(inspect.unwrap(function)))
    except (TypeError, OSError):
        return []
    folder = os.path.dirname(first)
    own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if f"{os.sep}site-packages{os.sep}" in first or first.startswith(own + os.sep):
        return []
    files = [first]
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and file.endswith(".py"):
            file = os.path.realpath(file)
            if file.startswith(folder + os.sep) and f"{os.sep}site-packages{os.sep}" not in file:
                files.append(file)
    return sorted(set(files))[:MOST_FILES]


def look_at(functions):
    """(problems, remarks) of the files that the functions come from, each said once."""
    problems, remarks = [], []
    for file in sorted({file for function in functions for file in _files_of(function)}):
        of_file, told = _look_at_file(file)
        problems += of_file
        remarks += told
    return problems, remarks

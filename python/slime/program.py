"""Where the program `slime` is."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

__all__ = ["find_program", "program_environment"]


def find_program():
    """SLIME_BINARY, the one that a wheel carries, that of a clone's build, or the one on PATH."""
    stated = os.environ.get("SLIME_BINARY")
    if stated:
        return stated
    here = Path(__file__).resolve().parent
    for candidate in (here / "bin" / "slime", here.parents[1] / "build" / "release" / "slime"):
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    found = shutil.which("slime")
    if found:
        return found
    raise FileNotFoundError("the program slime is not to be found: build it (./dev build) or set SLIME_BINARY to its path")


def _library_folders():
    """Of the package torch in this interpreter and of those that its CPU side links. Nothing is imported."""
    folders = []
    for package, inside in (("torch", "lib"), ("nvidia", "cu13/lib")):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec else []:
            if (Path(place) / inside).is_dir():
                folders.append(str(Path(place) / inside))
    return folders


def program_environment():
    """The environment for the program, or None for that of this process. The program that a wheel carries finds LibTorch in
    the package torch beside it; this is for one that lies elsewhere on the interpreter's path."""
    packages = Path(__file__).resolve().parents[1]
    is_carried = (packages / "slime" / "bin" / "slime").is_file()
    if not is_carried or (packages / "torch" / "lib" / "libtorch_cpu.so").is_file():
        return None
    before = os.environ.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": ":".join([*_library_folders(), *([before] if before else [])])}


def _become(name):
    program = Path(find_program()).with_name(name)
    environment = program_environment() or dict(os.environ)
    if environment.get("LD_LIBRARY_PATH") is not None and importlib.util.find_spec("torch") is None:
        sys.exit("slime: LibTorch is missing; install the package torch 2.11.0 in this environment")
    # Functions of the user's run in python3: that of this environment, also where it is not activated.
    environment["PATH"] = os.path.dirname(sys.executable) + os.pathsep + environment.get("PATH", "")
    try:
        os.execve(program, [str(program), *sys.argv[1:]], environment)
    except OSError as error:
        sys.exit(f"{program}: {error.strerror}")


def main():
    """The command `slime` of a wheel."""
    _become("slime")


def sandbox_main():
    """The command `slime-sandbox` of a wheel."""
    _become("slime-sandbox")

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


_CARRIED = Path(__file__).resolve().parent / "bin" / "slime"
# What LibTorch's CPU side, which the wheel carries, links: of the packages nvidia-cuda-runtime and nvidia-cuda-cupti.
_LINKED = ("libcudart.so.13", "libcupti.so.13")


def _library_folders():
    """Of the packages that the program loads libraries of: CUDA's, and torch for its CUDA side. Nothing is imported."""
    folders = []
    for package, inside in (("torch", "lib"), ("nvidia", "cu13/lib")):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec else []:
            if (Path(place) / inside).is_dir():
                folders.append(Path(place) / inside)
    return folders


def program_environment():
    """The environment for the program, or None for that of this process. The program that a wheel carries finds libraries of
    packages beside this one; this is for packages that lie elsewhere on the interpreter's path."""
    if not _CARRIED.is_file():
        return None
    packages = _CARRIED.parents[2]
    folders = [str(folder) for folder in _library_folders() if packages not in folder.parents]
    if not folders:
        return None
    before = os.environ.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": ":".join([*folders, *([before] if before else [])])}


def _missing_libraries():
    """Of those that the carried program cannot start without. LD_LIBRARY_PATH may name others' folders."""
    folders = [*_library_folders(), *map(Path, filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")))]
    return [name for name in _LINKED if not any((folder / name).is_file() for folder in folders)]


def _become(name):
    program = Path(find_program()).with_name(name)
    if program.parent == _CARRIED.parent and (missing := _missing_libraries()):
        sys.exit(
            f"slime: {' and '.join(missing)} of CUDA 13 cannot be found, which LibTorch needs on CPUs too: "
            "pip install nvidia-cuda-runtime nvidia-cuda-cupti (pip install slime-rl does)"
        )
    environment = program_environment() or dict(os.environ)
    # Functions of the user's run in python3: that of this environment, also where it is not activated.
    environment["SLIME_COMMAND"] = "slime" if shutil.which("slime") == sys.argv[0] else sys.argv[0]  # in commands that it prints
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

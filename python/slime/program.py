"""Where the program `slime` is."""

import os
import shutil
from pathlib import Path

__all__ = ["find_program"]


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

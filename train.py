#!/usr/bin/env python3
"""Scripts of slime call `python3 train.py FLAGS`: this is `slime train FLAGS`, more lenient with flags that it does not know.

The loop itself is in the program. One in Python, to edit: examples/python_loop/train_loop.py (docs/python.md)."""

import os
import shutil
import sys
from pathlib import Path


def main(command: str) -> None:
    built = Path(__file__).resolve().parent / "build" / "release" / "slime"
    program = os.environ.get("SLIME_BINARY") or (str(built) if built.exists() else shutil.which("slime"))
    if program is None:
        sys.exit("slime is not built: ./dev build release slime")
    try:
        os.execv(program, [program, command, "--from-launch-script", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{program}: {error.strerror}")


def train(args) -> None:
    """For scripts of one's own: `from train import train`, `args = parse_args()`, `train(args)`. Returns when the run has ended."""
    from slime.utils.arguments import run_program

    run_program(args)


if __name__ == "__main__":
    main("train")

#!/usr/bin/env python3
"""Scripts of slime call `python3 train_async.py FLAGS`: this is `slime train-async FLAGS`.

A loop in Python, to edit: examples/python_loop/train_loop.py (docs/python.md)."""

from train import main


def train(args) -> None:
    """As that of train.py, for `slime train-async`."""
    from slime.utils.arguments import run_program

    run_program(args, "train-async")


if __name__ == "__main__":
    main("train-async")

#!/usr/bin/env python3
"""Scripts of slime call `python3 train_async.py FLAGS`: this is `slime train-async FLAGS`.

A loop in Python, to edit: examples/python_loop/train_loop.py (docs/python.md)."""

from train import main

if __name__ == "__main__":
    main("train-async")

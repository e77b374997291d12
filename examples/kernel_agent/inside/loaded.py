"""The runner with all that answers import, for a warm process: imported once, main() is called in each fork. Nothing here may use CUDA."""

import contextlib
import os
import sys

import torch

sys.path.insert(0, os.path.dirname(__file__))
from runner import Guard, main  # noqa: E402

with contextlib.suppress(ImportError):  # an answer that imports it says so
    import triton  # noqa: F401
    import triton.language  # noqa: F401

torch.set_num_threads(1)
with torch.no_grad(), Guard():  # brings in what Torch imports at its first intercepted operator
    torch.empty(2).reshape(1, 2)
assert not torch.cuda.is_initialized()

__all__ = ["main"]

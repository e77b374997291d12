"""An interpreter that has torch: this one, or one of the machine's (Debian: python3-torch)."""

import functools
import subprocess
import sys

__all__ = ["torch_python"]


@functools.lru_cache
def torch_python():
    """Its path; None where there is none."""
    for python in (sys.executable, "python3", "/usr/bin/python3"):
        try:
            found = subprocess.run([python, "-c", "import torch"], capture_output=True, timeout=120)
        except OSError:
            continue
        if found.returncode == 0:
            return python
    return None

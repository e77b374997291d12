"""The tests of test_trainer_hooks.py and test_ppo_utils.py under an interpreter that has torch, where this one has none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch_python import torch_python

HERE = Path(__file__).resolve().parent
TESTS = ("test_trainer_hooks.py", "test_ppo_utils.py")


@pytest.mark.skipif(torch_python() in (None, sys.executable), reason="torch is here, or nowhere (Debian: python3-torch)")
def test_the_trainers_hooks_with_torch():
    packages = Path(pytest.__file__).resolve().parents[1]
    command = [torch_python(), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--disable-warnings", *(str(HERE / name) for name in TESTS)]
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    done = subprocess.run(command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and " passed" in done.stdout and "skipped" not in done.stdout, done.stdout + done.stderr

"""The API reference is that of the docstrings."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_that_of_the_docstrings():
    done = subprocess.run([sys.executable, ROOT / "tools" / "generate" / "api_page.py", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

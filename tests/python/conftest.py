"""Tests of python/slime. `slime` is the package of this clone, whatever is installed."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parent))


def golden(name):
    """Cases of tests/golden/NAME.json."""
    return json.loads((ROOT / "tests" / "golden" / f"{name}.json").read_text())

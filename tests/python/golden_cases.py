"""Cases of tests/golden, for tests of python/slime."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def golden(name):
    """Cases of tests/golden/NAME.json."""
    return json.loads((ROOT / "tests" / "golden" / f"{name}.json").read_text())

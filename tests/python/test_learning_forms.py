"""The flags that bench/learning/forms.py takes from the quickstarts: it finds the commands of the quickstarts, and nothing in them is left for a shell to fill in."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def forms():
    spec = importlib.util.spec_from_file_location("forms", ROOT / "bench/learning/forms.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("script, stages", [("arithmetic.sh", 2), ("smollm2.sh", 1)])
def test_each_stage_of_a_quickstart_is_found(forms, script, stages):
    commands = forms.flags_of(script)
    assert len(commands) == stages
    for flags in commands:
        folders = {"data": "D", "model": "M", "sft": "S", "run": "R"}
        words = forms.with_folders(flags, folders)
        assert "--hf-checkpoint" in words and "--run-dir" in words
        assert not [word for word in words if "$" in word]

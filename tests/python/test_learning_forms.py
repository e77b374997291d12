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


def test_the_first_prompts_alone_are_kept(forms, tmp_path):
    forms.make_data(tmp_path / "all", "arithmetic", None)
    forms.make_data(tmp_path / "few", "arithmetic", 3)
    whole = (tmp_path / "all" / "rl.jsonl").read_text().splitlines()
    assert (tmp_path / "few" / "rl.jsonl").read_text().splitlines() == whole[:3]
    with pytest.raises(SystemExit, match="--prompts 5000: the task has 4000"):
        forms.make_data(tmp_path / "more", "arithmetic", 5000)

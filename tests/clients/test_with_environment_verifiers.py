"""--environment verifiers:NAME: the taskset of docs/environments.md, one with a tool, and one that does not exist."""

import subprocess
import sys

import pytest
from environment_run import module_of_docs, train

pytest.importorskip("verifiers.v1", reason="verifiers 0.4 is not installed")


def test_a_taskset_trains(tmp_path):
    (tmp_path / "letters.py").write_text(module_of_docs("letters.py"))
    steps = train(tmp_path, "verifiers:letters", {})
    assert all({"rollout/reward/small_letters", "rollout/reward/turns"} <= set(step) for step in steps)


def test_an_unknown_taskset_is_refused_with_those_that_are_installed():
    done = subprocess.run(
        [sys.executable, "-m", "slime.environments", '{"environment": "verifiers:nowhere", "args": {}, "evaluates": false}'],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert "nowhere" in done.stdout and "Installed packages that use verifiers" in done.stdout

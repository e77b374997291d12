"""The first command of README, made short: what it says at its start, between its two stages and at its end."""

import os
import shutil
import subprocess

import pytest
from conftest import ROOT, SLIME

pytestmark = pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")


def test_the_quickstart_says_that_it_has_two_stages_and_ends_once(tmp_path):
    own = {"RUNS": str(tmp_path / "runs"), "DATA": str(tmp_path / "data"), "SLIME_BINARY": str(SLIME)}
    short = ["--num-rollout", "1", "--num-threads", "1"]  # of both stages
    command = [ROOT / "examples" / "quickstart" / "arithmetic.sh", *short]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    said = [
        "This has two stages",
        "==> stage 1 of 2: supervised",
        "stage 1 of 2 is done: rollout steps 1 of 1, ",
        "==> stage 2 of 2: reinforcement learning",
        "talk to it",
        f"Read the run:        {SLIME} view {tmp_path / 'runs' / 'arithmetic'}",
    ]
    places = [done.stdout.find(text) for text in said]
    assert -1 not in places and places == sorted(places), list(zip(said, places, strict=True))
    assert done.stdout.count("talk to it") == 1, "the first stage is not the end"

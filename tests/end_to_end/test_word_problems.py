"""examples/word_problems: its rows are right and apart, and its script trains a tiny model for a step of each stage."""

import json
import os
import re
import subprocess
import sys

from conftest import ROOT, SLIME, metric

EXAMPLE = ROOT / "examples" / "word_problems"


def test_answers_follow_from_their_steps_and_tests_are_not_trained_on(tmp_path):
    subprocess.run([sys.executable, EXAMPLE / "make_data.py", tmp_path], check=True)
    train, test = ([json.loads(line) for line in (tmp_path / name).open()] for name in ("train.jsonl", "test.jsonl"))
    assert (len(train), len(test)) == (4096, 256)
    assert not {row["question"] for row in train} & {row["question"] for row in test}
    for row in test:
        steps, result = row["answer"].split("\n#### ")
        for left, sign, right, value in re.findall(r"^(\d+) ([+x-]) (\d+) = (\d+)$", steps, re.MULTILINE):
            left, right = int(left), int(right)
            assert int(value) == {"+": left + right, "-": left - right, "x": left * right}[sign]
        assert steps.endswith(f"= {result}")


def test_the_script_trains_a_tiny_model(work, tmp_path):
    variables = {"MODEL": str(work / "model"), "DATA": str(tmp_path / "data"), "RUNS": str(tmp_path / "runs"), "SLIME_BINARY": str(SLIME)}
    few = ["--device", "cpu", "--rollout-batch-size", "4", "--global-batch-size", "4", "--num-threads", "1"]
    environment = {**os.environ, **variables, "SFT_STEPS": "1", "RL_STEPS": "1"}
    done = subprocess.run([EXAMPLE / "run.sh", *few], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(metric(tmp_path / "runs" / "word_problems-sft", "train/loss")) == 1
    assert len(metric(tmp_path / "runs" / "word_problems", "eval/word_problems")) >= 1

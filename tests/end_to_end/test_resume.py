"""No error loses the step that was trained: it is saved first, and the run goes on from there bit for bit."""

import json
import os
import signal
import subprocess
import time

import pytest
from conftest import run_slime, train_command, weights

ROLLOUTS = 5
REWARD = """
import os, time
def reward(args, sample, **kwargs):
    if os.path.exists("fail"):
        raise RuntimeError("the judge is away")
    while os.path.exists("wait"):
        time.sleep(0.05)
    if sample.group_index == 12:  # the fourth step has begun
        for word in ("fail", "wait"):
            if os.path.exists("then_" + word):
                os.rename("then_" + word, word)
    return float(sample.index % 3)
"""


def command(folder, run_dir, extra=()):
    args = train_command(folder.work, run_dir, rollouts=ROLLOUTS, extra=["--custom-rm-path", str(folder.path / "reward.py") + ":reward", *extra])
    args[args.index("--save-interval") + 1] = "1000"
    return args


@pytest.fixture
def folder(work, tmp_path):
    class Folder:
        pass

    made = Folder()
    made.work, made.path = work, tmp_path
    (tmp_path / "reward.py").write_text(REWARD)
    return made


def iteration(run_dir):
    return json.loads((run_dir / "latest" / "run.json").read_text())["iteration"]


def test_rewards_that_fail_lose_no_step(folder):
    straight, run = folder.path / "straight", folder.path / "run"
    done = run_slime(command(folder, straight), cwd=folder.path)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder.path / "then_fail").touch()
    done = run_slime(command(folder, run), cwd=folder.path)
    assert done.returncode == 2 and "the judge is away" in done.stderr, done.stdout + done.stderr
    assert "rollout step 2 was trained before the error, and is saved" in done.stdout + done.stderr
    assert iteration(run) == 2
    (folder.path / "fail").unlink()
    done = run_slime(command(folder, run), cwd=folder.path)
    assert done.returncode == 0 and "continuing after rollout 2" in done.stdout, done.stdout + done.stderr
    assert weights(run) == weights(straight)
    assert len(json.loads((run / "run.json").read_text())["starts"]) == 2


def test_sigterm_in_the_middle_of_a_step_saves_the_one_before_within_its_grace(folder):
    straight, run = folder.path / "straight", folder.path / "run"
    assert run_slime(command(folder, straight), cwd=folder.path).returncode == 0
    (folder.path / "then_wait").touch()
    process = subprocess.Popen(command(folder, run), cwd=folder.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 120
    while not (folder.path / "wait").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    told = time.monotonic()
    out, _ = process.communicate(timeout=60)
    took = time.monotonic() - told
    assert process.returncode == 130 and iteration(run) == 2, out
    assert "interrupted" in out and "the same command continues after rollout 2" in out, out
    assert took < 10, f"{took:.1f} s"
    os.unlink(folder.path / "wait")
    done = run_slime(command(folder, run), cwd=folder.path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert weights(run) == weights(straight)


def test_an_evaluation_that_throws_loses_no_step(folder):
    (folder.path / "evaluate.py").write_text("def evaluate(args, rollout_id, data_source, evaluation=False):\n    raise ValueError('no such set')\n")
    run = folder.path / "run"
    extra = ["--eval-function-path", str(folder.path / "evaluate.py") + ":evaluate", "--eval-interval", "2", "--skip-eval-before-train"]
    extra += ["--eval-prompt-data", "test", str(folder.work / "data" / "test.jsonl")]
    done = run_slime(command(folder, run, extra), cwd=folder.path)
    assert done.returncode == 2 and "no such set" in done.stderr, done.stdout + done.stderr
    assert iteration(run) == 1
    audit = subprocess.run([command(folder, run)[0], "ledger", str(run)], capture_output=True, text=True)
    assert audit.returncode == 0, audit.stdout + audit.stderr


REPLAY = """
from slime.utils.types import Sample


class Source:
    def __init__(self, args):
        self.given = 0

    def get_samples(self, count):
        groups = []
        for _ in range(count):
            group = []
            for i in range(4):
                sample = Sample(prompt="1+1=", label="2", tokens=[40, 41, 42, 50 + i], response_length=2)
                sample.rollout_log_probs = [-1.0, -2.0]
                sample.reward = float(i % 2)
                sample.status = Sample.Status.COMPLETED
                group.append(sample)
            groups.append(group)
            self.given += 1
        return groups

    def add_samples(self, groups):
        raise RuntimeError("nothing of a replay comes back")

    def save(self, rollout_id):
        pass

    def load(self, rollout_id=None):
        pass

    def __len__(self):
        return 0
"""


def test_groups_that_a_data_source_returns_finished_are_trained_as_they_are_and_the_ledger_adds_up(folder):
    (folder.path / "replay.py").write_text(REPLAY)
    run = folder.path / "run"
    done = run_slime(command(folder, run, ["--data-source-path", str(folder.path / "replay.py") + ":Source"]), cwd=folder.path)
    assert done.returncode == 0, done.stdout + done.stderr
    for step in range(ROLLOUTS):
        for line in (run / "rollouts" / f"step_{step:06}.jsonl").read_text().split("\n")[:-1]:
            sample = json.loads(line)
            assert sample["tokens"][:3] == [40, 41, 42] and len(sample["tokens"]) == 4, sample
    audit = subprocess.run([command(folder, run)[0], "ledger", str(run)], capture_output=True, text=True)
    assert audit.returncode == 0, audit.stdout + audit.stderr

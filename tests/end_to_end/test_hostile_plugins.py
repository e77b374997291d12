"""A run among whose rewards twelve are hostile: it finishes, and each of them costs its own prompt, with its reason."""

import json
import os
import shutil
from pathlib import Path

import pytest
from conftest import SLIME, metric, run_slime
from test_rollout_hooks import fates, hooked, trained

pytestmark = pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")

SLEEP = "98765.4321"  # seconds: by this argument the sleepers are known
MISDEEDS = {
    "raise": ("raise ValueError('no such luck')", "ValueError: no such luck"),
    "hang": ("time.sleep(1000)", "took longer than 6 s"),
    "segfault": ("ctypes.string_at(0)", "was killed by signal 11"),
    # Bounded: what the machine has is others' too.
    "leak": (
        "held = []\n        for _ in range(80): held.append(b'x' * (32 << 20)); time.sleep(0.02)",
        "more than --plugin-memory-gb 0.5, and was killed",
    ),
    "fork": (
        f"held = [subprocess.Popen(['sleep', '{SLEEP}'], start_new_session=True) for _ in range(400)]; time.sleep(1000)",
        "processes with those that it started, more than 256",
    ),
    "loud": ("for _ in range(1024): sys.stdout.write('x' * (1 << 20))", None),  # it may say as much as it likes
    "nan": ("return float('nan')", "it is a finite number"),
    "type": ("return 'much'", "the reward is str; it is a number"),
    "length": ("sample.loss_mask = [1] * 99", "Sample.loss_mask was set to 99 numbers"),
    "late": (
        "try: await asyncio.sleep(1000)\n        except asyncio.CancelledError: await asyncio.sleep(0.2)",
        "took longer than 6 s",
    ),
    "exit": ("os._exit(0)", "ended with exit code 0"),
    "close": ("os.close(3)", "the plug-in host "),
}

HEAD = "import asyncio, ctypes, os, subprocess, sys, time\nasync def reward(args, sample, **kwargs):\n"


def sleepers():
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(file.read_bytes())
        except OSError:
            continue  # it has ended
    return sum(line == b"sleep\0" + SLEEP.encode() + b"\0" for line in lines)


@pytest.fixture(scope="module")
def run(work):
    """Every second prompt of the first 24 has a hostile sample."""
    code = HEAD
    for i, (statement, _) in enumerate(MISDEEDS.values()):
        code += f"    if sample.index == {8 * i + 5}:\n        {statement}\n"
    code += "    return float(sample.index % 4)\n"
    run_dir = work / "hostile"
    flags = ["--custom-rm-path", "own.py", "--plugin-timeout-seconds", "6", "--plugin-memory-gb", "0.5"]
    done = hooked(work, run_dir, code, flags, rollouts=6)
    return done, run_dir


def test_the_run_finishes_and_all_adds_up(run):
    done, run_dir = run
    trained(done, run_dir, 6)
    assert metric(run_dir, "rollout/raw_reward") == [1.5] * 6


def test_each_hostile_sample_costs_its_own_prompt_with_its_reason(run):
    _, run_dir = run
    reasons = {record["ordinal"]: record["reason"] for record in fates(run_dir, "failed")}
    lost = "while this call waited, and it may not be made twice"
    for i, (name, (_, reason)) in enumerate(MISDEEDS.items()):
        said = reasons.pop(2 * i + 1, None)
        if reason is None:
            assert said is None or "took longer" in said, said
        elif name == "late" and said is not None and lost in said:
            continue  # it waited when another one ended its host
        else:
            assert said is not None and said.startswith("reward: ") and reason in said, (name, said)
    assert not reasons, "nobody else is held to blame"


def test_the_ledger_shows_the_reasons(run):
    _, run_dir = run
    for i, (_, reason) in enumerate(MISDEEDS.values()):
        shown = run_slime([str(SLIME), "ledger", str(run_dir), "--ordinal", str(2 * i + 1)])
        assert shown.returncode == 0, shown.stdout + shown.stderr
        is_said = "failed (reward: " in shown.stdout and (reason is None or reason in shown.stdout or "made twice" in shown.stdout)
        assert reason is None or is_said, shown.stdout


def test_what_they_started_is_gone_and_what_they_said_is_bounded(run):
    _, run_dir = run
    assert sleepers() == 0
    logs = list((run_dir / "plugin").glob("host-0*.log"))
    # 8 MiB of each minute, and of each of the two hosts.
    assert logs and sum(os.path.getsize(log) for log in logs) < 6 * (9 << 20)
    assert json.loads((run_dir / "run.json").read_text())

"""A tiny model and a small task, made once per test session with the project's own tools."""

import json
import math
import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SLIME = Path(os.environ.get("SLIME_BINARY", ROOT / "build" / "release" / "slime"))


def pytest_addoption(parser):
    parser.addoption("--instants", type=int, help="test_deaths.py: how often each signal is sent to each role (default: a few in all)")


@pytest.fixture
def instants(request):
    return request.config.getoption("--instants")


@pytest.fixture(scope="session")
def work(tmp_path_factory):
    """A folder with model/ (random weights) and data/ (sft.jsonl, rl.jsonl, test.jsonl)."""
    folder = tmp_path_factory.mktemp("slime")
    subprocess.run([sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(
        [sys.executable, ROOT / "tools" / "arithmetic_task.py", folder / "data", "--digits", "2"]
        + ["--corpus", "200", "--problems", "60", "--test", "20"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return folder


def train_command(work, run_dir, *, rollouts=20, extra=()):
    """A small run that repeats: float32, one thread."""
    return [
        str(SLIME), "train", "--hf-checkpoint", str(work / "model"), "--prompt-data", str(work / "data" / "rl.jsonl"),
        "--input-key", "prompt", "--label-key", "label", "--apply-chat-template", "--rollout-shuffle",
        "--rm-type", "random", "--rollout-batch-size", "4", "--n-samples-per-prompt", "4",
        "--rollout-max-response-len", "6", "--num-rollout", str(rollouts), "--global-batch-size", "16",
        "--use-dynamic-batch-size", "--max-tokens-per-gpu", "512", "--lr", "1e-3", "--lr-decay-style", "constant",
        "--fp32", "--num-threads", "1", "--save-interval", "1", "--keep-checkpoints", "2", "--run-dir", str(run_dir),
        "--device", "cpu", *extra,
    ]  # fmt: skip


def sft_command(work, run_dir, data, *, rollouts, extra=()):
    """Supervised training on conversations: float32, one thread."""
    return [
        str(SLIME), "train", "--hf-checkpoint", str(work / "model"), "--prompt-data", str(data), "--input-key", "messages",
        "--rollout-function-path", "slime.rollout.sft_rollout.generate_rollout", "--loss-type", "sft_loss",
        "--debug-train-only", "--calculate-per-token-loss", "--rollout-shuffle", "--num-rollout", str(rollouts),
        "--lr", "1e-3", "--lr-decay-style", "constant", "--fp32", "--num-threads", "1", "--save-interval", "1",
        "--keep-checkpoints", "2", "--run-dir", str(run_dir), "--device", "cpu", *extra,
    ]  # fmt: skip


def run_slime(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def planned(work, *words):
    """What `slime plan` predicts of an engine's device, and what it says."""
    command = [str(SLIME), "plan", "--hf-checkpoint", str(work / "model"), "--rollout-batch-size", "4", "--json", *words]
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["engine_memory"], done.stderr


def sizes_in(folder):
    """How many numbers the tensors of a model directory have, by name."""
    data = (folder / "model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    return {name: math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}


def numbers_that_repeat(run_dir):
    """metrics.jsonl without times and rates, by step."""
    steps = {}
    for line in (run_dir / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        kept = {k: v for k, v in row.items() if not k.startswith(("perf/", "phase/")) and k != "time"}
        steps.setdefault(row["step"], {}).update(kept)
    return steps


@pytest.fixture(scope="session")
def reference(work):
    """The folder of a run that nobody disturbed."""
    run_dir = work / "reference"
    done = run_slime(train_command(work, run_dir))
    assert done.returncode == 0, done.stdout + done.stderr
    return run_dir


def weights(run_dir):
    return (run_dir / "latest" / "model.safetensors").read_bytes()


@pytest.fixture(scope="session")
def capitals(work):
    """Prompts whose reward is 1 when the response has a word of capital letters: a third of random bytes have one."""
    rng = random.Random(3)
    wanted = {"instruction_id_list": ["change_case:capital_word_frequency"]}
    wanted["kwargs"] = [{"capital_frequency": 1, "capital_relation": "at least"}]
    rows = [{"prompt": f"{rng.randint(10, 99)}+{rng.randint(10, 99)}=", "metadata": wanted} for _ in range(64)]
    path = work / "capitals.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def command_on(work, data, run_dir, extra, rollouts=30):
    command = train_command(work, run_dir, rollouts=rollouts)
    command[command.index("--prompt-data") + 1] = str(data)
    for flag in ("--label-key",):
        at = command.index(flag)
        del command[at : at + 2]
    for flag, value in (("--rm-type", "ifbench"), ("--save-interval", "1000"), ("--n-samples-per-prompt", "8")):
        command[command.index(flag) + 1] = value
    command[command.index("--global-batch-size") + 1] = "32"
    return [*command, *extra]


def metric(run_dir, name):
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [row[name] for row in rows if name in row]


def mean(values):
    return sum(values) / len(values)

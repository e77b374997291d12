"""`--deterministic-mode` on a GPU: two runs of a command, and a resumed one, write the same checkpoints byte for byte."""

import json
import random
import subprocess
import sys

import pytest
from conftest import ROOT, metric, run_slime, sft_command, train_command
from visible_gpus import num_gpus

pytestmark = pytest.mark.skipif(num_gpus() == 0, reason="no NVIDIA GPU")

ROLLOUTS = 6


def text_of(rng, length):
    return "".join(rng.choice("abcdefghij 0123456789") for _ in range(length))


@pytest.fixture(scope="module")
def long_rows(work, tmp_path_factory):
    """A model whose heads have 64 numbers, and rows of hundreds to thousands of tokens, each of one byte."""
    folder = tmp_path_factory.mktemp("long")
    made = [sys.executable, str(ROOT / "tools" / "tiny_model.py"), str(folder / "model")]
    made += ["--hidden", "256", "--head-dim", "64", "--positions", "4096"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    (folder / "data").symlink_to(work / "data")
    rng = random.Random(5)
    sizes = (2600, 2100, 1500, 900, 2300, 300, 1800, 1200)
    questions = [{"role": "user", "content": text_of(rng, sizes[i % len(sizes)])} for i in range(64)]
    answers = [{"role": "assistant", "content": text_of(rng, sizes[i % len(sizes)])} for i in range(64)]
    short = {"role": "user", "content": "Go on."}
    for name, rows in (
        ("sft_long", [{"messages": [short, answer]} for answer in answers]),
        ("rl_long", [{"prompt": [question], "label": "1"} for question in questions]),
    ):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def supervised(folder, run_dir, rollouts):
    extra = ["--rollout-batch-size", "8", "--global-batch-size", "8", "--use-dynamic-batch-size", "--max-tokens-per-gpu", "8192"]
    return sft_command(folder, run_dir, folder / "sft_long.jsonl", rollouts=rollouts, extra=extra)


def generated(folder, run_dir, rollouts):
    """Groups share their prompts, and each response has one ratio: sums over the tokens of responses."""
    command = train_command(folder, run_dir, rollouts=rollouts, extra=["--advantage-estimator", "gspo"])
    for flag, value in (("--prompt-data", folder / "rl_long.jsonl"), ("--max-tokens-per-gpu", "8192"), ("--rollout-max-response-len", "48")):
        command[command.index(flag) + 1] = str(value)
    return command


FORMS = {"supervised": supervised, "generated": generated}


def on_gpu(command):
    command[command.index("--fp32")] = "--bf16"
    command[command.index("--device") + 1] = "cuda"
    return [*command, "--deterministic-mode"]


def finished(command):
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--deterministic-mode has no effect" not in done.stdout + done.stderr
    return done.stdout


def saved(run_dir):
    """Weights and the optimizer's state of the last checkpoint, by file."""
    latest = (run_dir / "latest").resolve()
    return {str(path.relative_to(latest)): path.read_bytes() for path in latest.rglob("*.safetensors")}


@pytest.mark.parametrize("form", FORMS)
def test_runs_of_a_command_write_the_same_bytes(long_rows, tmp_path, form):
    runs = {"whole": [ROLLOUTS], "again": [ROLLOUTS], "resumed": [3, ROLLOUTS]}
    for name, parts in runs.items():
        for rollouts in parts:
            text = finished(on_gpu(FORMS[form](long_rows, tmp_path / name, rollouts)))
    assert "continuing after rollout 2" in text
    whole = saved(tmp_path / "whole")
    assert len(whole) > 1, "weights and moments"
    for name in ("again", "resumed"):
        other = saved(tmp_path / name)
        assert other.keys() == whole.keys()
        assert [file for file in whole if other[file] != whole[file]] == [], name
        assert metric(tmp_path / name, "train/loss") == metric(tmp_path / "whole", "train/loss")
    assert len(set(metric(tmp_path / "whole", "train/grad_norm"))) > 1, "something was trained"

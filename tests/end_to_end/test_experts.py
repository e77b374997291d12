"""A model with experts through every command: it trains, stops and goes on, generates, and its files are what they were."""

import json
import struct
import subprocess
import sys

import pytest
from conftest import ROOT, SLIME, numbers_that_repeat, run_slime, train_command, weights


@pytest.fixture(scope="module", params=[[], ["--latent", "24"], ["--delta"]], ids=["qwen3_moe", "deepseek_v3", "qwen3_next"])
def experts(request, work, tmp_path_factory):
    """A folder like `work` whose model has four experts in each layer, beside plain attention, latent attention or a gated delta net."""
    folder = tmp_path_factory.mktemp("experts")
    maker = [sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model", "--experts", "4", *request.param]
    subprocess.run(maker, check=True, stdout=subprocess.DEVNULL)
    (folder / "data").symlink_to(work / "data")
    return folder


@pytest.fixture(scope="module")
def trained(experts):
    run_dir = experts / "trained"
    done = run_slime(train_command(experts, run_dir, rollouts=6))
    assert done.returncode == 0, done.stdout + done.stderr
    return run_dir


def header(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return {name: entry["shape"] for name, entry in json.loads(data[8 : 8 + length]).items() if name != "__metadata__"}


def test_a_checkpoint_has_the_tensors_of_the_model(experts, trained):
    saved = trained / "latest"
    assert header(saved / "model.safetensors") == header(experts / "model" / "model.safetensors")
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (experts / "model", saved))
    assert before == after
    assert weights(trained) != (experts / "model" / "model.safetensors").read_bytes()


def test_a_run_that_stopped_goes_on_as_if_it_had_not(experts, trained):
    run_dir = experts / "in-two-parts"
    for rollouts in (3, 6):
        done = run_slime(train_command(experts, run_dir, rollouts=rollouts))
        assert done.returncode == 0, done.stdout + done.stderr
    assert weights(run_dir) == weights(trained)
    assert numbers_that_repeat(run_dir) == numbers_that_repeat(trained)


def test_engine_and_trainer_agree(trained):
    """On-policy, so the log-probs of the engine are those of the trainer."""
    for step in numbers_that_repeat(trained).values():
        assert step["train/train_rollout_logprob_abs_diff"] < 1e-5


def test_two_ranks_learn_what_one_does(experts, trained):
    run_dir = experts / "two-ranks"
    extra = ["--actor-num-gpus-per-node", "2"]
    done = run_slime(train_command(experts, run_dir, rollouts=1, extra=extra))
    assert done.returncode == 0, done.stdout + done.stderr
    one, two = (numbers_that_repeat(folder)[0]["train/loss"] for folder in (trained, run_dir))
    assert abs(one - two) < 1e-6


def test_it_generates(experts, trained):
    lines = "".join(json.dumps({"text": f"{i}+{i}=", "sampling_params": {"max_new_tokens": 5}}) + "\n" for i in range(8))
    command = [str(SLIME), "generate", "--model", str(trained / "latest"), "--dtype", "float32"]
    done = run_slime(command, input=lines)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 8
    assert all(1 <= answer["meta_info"]["completion_tokens"] <= 5 for answer in answers)


def test_inspect_tells_of_the_experts(experts):
    done = run_slime([str(SLIME), "inspect", str(experts / "model")])
    assert done.returncode == 0, done.stderr
    assert "2 of 4 experts 96" in done.stdout
    assert "problems    none" in done.stdout

"""`slime train --device cuda --rollout-num-gpus N`: the trainer on one GPU, engines on others; skipped where there is one GPU."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import SLIME, metric, run_slime, train_command
from visible_gpus import num_gpus

pytestmark = pytest.mark.skipif(num_gpus() < 2, reason="fewer than two NVIDIA GPUs")

APART = ["--device", "cuda", "--rollout-num-gpus", "1"]
COMES_BACK = ["--use-fault-tolerance", "--max-restarts", "1000"]
DIRECTLY = "new weights come from the trainer's device directly"


def finished(command, **options):
    done = run_slime(command, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def responses(run_dir):
    steps = {}
    for path in (run_dir / "rollouts").glob("step_*.jsonl"):
        samples = [json.loads(line) for line in path.open()]
        steps[path.stem] = sorted((sample["index"], sample["tokens"]) for sample in samples)
    return steps


def engine_of(process):
    for file in Path(f"/proc/{process.pid}/task").glob("*/children"):
        for pid in file.read_text().split():
            try:
                if Path(os.readlink(f"/proc/{pid}/fd/1")).name.startswith("engine_"):
                    return int(pid)
            except OSError:
                pass
    return None


def test_an_engine_on_the_second_gpu_draws_and_trains_what_one_gpu_does(work):
    finished(train_command(work, work / "one-gpu", rollouts=4, extra=["--device", "cuda"]))
    text = finished(train_command(work, work / "two-gpus", rollouts=4, extra=APART))
    assert "engine 0 computes on" in text and DIRECTLY in text, text
    assert "the published weights" in text
    assert responses(work / "two-gpus") == responses(work / "one-gpu")
    for name in ("train/loss", "train/grad_norm"):
        for two, one in zip(metric(work / "two-gpus", name), metric(work / "one-gpu", name), strict=True):
            assert abs(two - one) <= 1e-4 * max(1, abs(one)), name


@pytest.mark.skipif(num_gpus() < 3, reason="fewer than three NVIDIA GPUs")
def test_an_engine_of_two_gpus_draws_what_one_does_also_with_new_weights(work):
    run_dir = work / "engine-of-two"
    extra = ["--device", "cuda", "--rollout-num-gpus", "2", "--rollout-num-gpus-per-engine", "2"]
    finished(train_command(work, work / "engine-of-one", rollouts=1, extra=APART))
    text = finished(train_command(work, run_dir, rollouts=4, extra=extra))
    assert "engine 0 computes on" in text, text
    assert responses(run_dir)["step_000000"] == responses(work / "engine-of-one")["step_000000"]
    # What it drew with, behind three updates, are the trainer's weights.
    assert max(metric(run_dir, "train/train_rollout_logprob_abs_diff")) < 1e-4


@pytest.mark.parametrize("per_engine", [1, pytest.param(2, marks=pytest.mark.skipif(num_gpus() < 3, reason="fewer than three NVIDIA GPUs"))])
def test_engines_on_other_gpus_sample_with_the_adapter_that_is_trained(work, per_engine):
    """A rate so large that the model without its adapter would be far away after one step."""
    run_dir = work / f"adapter-of-{per_engine}"
    flags = ["--device", "cuda", "--rollout-num-gpus", str(per_engine), "--rollout-num-gpus-per-engine", str(per_engine)]
    text = finished(train_command(work, run_dir, rollouts=4, extra=[*flags, "--lora-rank", "8", "--lr", "5e-2", "--check-weight-update-equal"]))
    assert text.count("tensors are the same in trainer and engines") == 2, text
    assert max(metric(run_dir, "train/train_rollout_logprob_abs_diff")) < 2e-3


def test_the_users_choice_of_devices_is_respected(work):
    command = train_command(work, work / "turned", rollouts=2, extra=APART)
    text = finished(command, env={**os.environ, "CUDA_VISIBLE_DEVICES": "1,0"})
    assert "(device 1)" in text and DIRECTLY in text, text  # the second that is visible
    for extra in ([], ["--dry-run"]):
        command = train_command(work, work / "hidden", rollouts=2, extra=[*APART, *extra])
        done = run_slime(command, env={**os.environ, "CUDA_VISIBLE_DEVICES": "1"})
        # A dry run tells what is missing on this machine apart from what is wrong.
        assert done.returncode == (0 if extra else 2), done.stdout + done.stderr
        assert "the run needs 2 GPUs" in done.stdout + done.stderr
        assert not (work / "hidden").exists()


def test_generation_goes_on_while_the_other_gpu_trains(work):
    run_dir = work / "async-apart"
    command = train_command(work, run_dir, rollouts=12, extra=[*APART, "--max-staleness", "1"])
    command[1] = "train-async"
    assert DIRECTLY in finished(command)
    assert max(metric(run_dir, "train/train_rollout_logprob_abs_diff")[:1]) < 1e-4
    assert max(metric(run_dir, "rollout/weight_version/lag_max")) <= 1
    assert max(metric(run_dir, "perf/update_transfer_time")) > 0
    assert max(metric(run_dir, "perf/update_copy_time")) > 0


def test_an_engine_that_is_killed_comes_back_and_changes_nothing(work):
    run_dir, steps = work / "killed-gpu-engine", 40
    finished(train_command(work, work / "unharmed", rollouts=steps, extra=APART))
    process = subprocess.Popen(
        train_command(work, run_dir, rollouts=steps, extra=[*APART, *COMES_BACK]),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        for step in (3, 9):
            wait_for(lambda step=step: steps_done(run_dir) >= step, process)
            wait_for(lambda: engine_of(process) is not None, process)
            os.kill(engine_of(process), signal.SIGKILL)
        output, _ = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 0, output
    assert "was killed by signal 9" in output and "serves again" in output, output
    assert responses(run_dir) == responses(work / "unharmed")
    assert run_slime([str(SLIME), "ledger", str(run_dir), "--json"]).returncode == 0


def steps_done(run_dir):
    try:
        return int(os.readlink(run_dir / "latest").rsplit("_", 1)[1])
    except FileNotFoundError:
        return -1


def wait_for(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.005)

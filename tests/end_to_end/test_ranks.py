"""`slime train` with several data-parallel ranks: they train as one does, resume, and end when one of them is lost."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import numbers_that_repeat, run_slime, train_command, weights

TWO_RANKS = ["--actor-num-gpus-per-node", "2"]


def ranks(number):
    return ["--actor-num-gpus-per-node", str(number)]


def workers_of(process):
    """Process ids of the ranks, in their order, once they have started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [int(word) for word in children.read_text().split()]
        if any(Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"\0worker\0") for pid in found):
            return found
        time.sleep(0.01)
    raise AssertionError("no worker has started")


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def start_and_wait_for_a_step(work, run_dir, extra):
    process = subprocess.Popen(
        train_command(work, run_dir, rollouts=100_000, extra=extra), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not (run_dir / "latest").exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def test_two_ranks_train_on_the_same_rollouts_as_one_does(work):
    """The samples of a run with two ranks, trained again by one and by four: same metrics up to rounding."""
    two, dump = work / "two_ranks", work / "two_ranks_dump"
    pattern = str(dump / "{rollout_id}.jsonl")
    done = run_slime(train_command(work, two, rollouts=4, extra=TWO_RANKS + ["--save-debug-rollout-data", pattern]))
    assert done.returncode == 0, done.stdout + done.stderr
    expected = numbers_that_repeat(two)
    assert len(expected) == 4
    for number in (1, 4):
        again = work / f"again_with_{number}"
        done = run_slime(train_command(work, again, rollouts=4, extra=ranks(number) + ["--load-debug-rollout-data", pattern]))
        assert done.returncode == 0, done.stdout + done.stderr
        got = numbers_that_repeat(again)
        for step, numbers in expected.items():
            for name in [n for n in numbers if n.startswith("train/")] + ["rollout/advantages", "rollout/rewards"]:
                assert got[step][name] == pytest.approx(numbers[name], rel=1e-3, abs=1e-5), (number, step, name)


def test_loss_and_gradient_of_a_batch_agree_to_twelve_digits_in_float64(work):
    """The same rollout in one, two and four processes, packed with three budgets."""
    dump = str(work / "float64_dump" / "{rollout_id}.jsonl")
    assert run_slime(train_command(work, work / "float64_rollout", rollouts=1, extra=["--save-debug-rollout-data", dump])).returncode == 0
    got = []
    for number, tokens in ((1, 512), (2, 100), (4, 60)):
        run_dir = work / f"float64_{number}"
        command = train_command(work, run_dir, rollouts=1, extra=ranks(number) + ["--load-debug-rollout-data", dump, "--dtype", "float64"])
        command.remove("--fp32")
        command[command.index("--max-tokens-per-gpu") + 1] = str(tokens)
        done = run_slime(command + ["--use-rollout-logprobs", "--entropy-coef", "0.01"])
        assert done.returncode == 0, done.stderr
        got.append(numbers_that_repeat(run_dir)[0])
    for name in ("train/loss", "train/pg_loss", "train/entropy_loss", "train/ppo_kl", "train/grad_norm"):
        assert got[1][name] == pytest.approx(got[0][name], rel=1e-12, abs=1e-14), name
        assert got[2][name] == pytest.approx(got[0][name], rel=1e-12, abs=1e-14), name
    assert got[0]["train/grad_norm"] > 0.01


def test_a_run_with_ranks_that_is_killed_resumes_exactly_and_with_other_numbers_of_ranks(work):
    straight = work / "ranks_straight"
    assert run_slime(train_command(work, straight, rollouts=6, extra=TWO_RANKS)).returncode == 0
    killed = work / "ranks_killed"
    assert run_slime(train_command(work, killed, rollouts=3, extra=TWO_RANKS)).returncode == 0
    checkpoints = sorted(path.name for path in (killed / "checkpoints").glob("iter_*"))
    subprocess.run(["cp", "-r", killed, work / "ranks_one"], check=True)
    done = run_slime(train_command(work, killed, rollouts=6, extra=TWO_RANKS))
    assert done.returncode == 0, done.stderr
    assert weights(killed) == weights(straight)
    assert numbers_that_repeat(killed) == numbers_that_repeat(straight)
    # The checkpoint does not say by how many ranks it was written.
    assert checkpoints
    for number in (1, 4):
        run_dir = work / f"ranks_resumed_by_{number}"
        subprocess.run(["cp", "-r", work / "ranks_one", run_dir], check=True)
        done = run_slime(train_command(work, run_dir, rollouts=4, extra=ranks(number)))
        assert done.returncode == 0, done.stderr
        assert "continuing after rollout 2" in done.stdout + done.stderr
        step, same = numbers_that_repeat(run_dir)[3], numbers_that_repeat(straight)[3]
        assert step["train/grad_norm"] == pytest.approx(same["train/grad_norm"], rel=1e-3)


def test_a_rank_that_is_killed_ends_the_run_with_its_name(work):
    process = start_and_wait_for_a_step(work, work / "rank_killed", TWO_RANKS)
    victim = workers_of(process)[1]
    begin = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - begin < 10
    assert process.returncode == 1
    assert f"rank 1 (process {victim}) was killed by signal 9 (Killed)" in errors
    assert "rank 1 of 2 is ready" in errors, "the last lines it printed"


@pytest.fixture(scope="module")
def tolerant(work):
    run_dir = work / "tolerant_straight"
    assert run_slime(train_command(work, run_dir, rollouts=40, extra=[*TWO_RANKS, "--use-fault-tolerance"])).returncode == 0
    return run_dir


@pytest.mark.parametrize(("rank", "engines"), [(0, []), (1, []), (0, ["--colocate", "--rollout-num-gpus", "2"])], ids=["0", "1", "0-of-two-engines"])
def test_with_fault_tolerance_ranks_start_again_at_the_last_checkpoint_and_end_with_the_same_weights(work, tolerant, rank, engines):
    """Rank 0 has the engine, or the first of two; all of it is built again."""
    extra = [*TWO_RANKS, "--use-fault-tolerance", *engines]
    straight, run_dir = tolerant, work / f"tolerant_killed_{rank}_{len(engines)}"
    process = subprocess.Popen(
        train_command(work, run_dir, rollouts=40, extra=extra), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    while not (run_dir / "latest").exists():
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.005)
    victim = workers_of(process)[rank]
    os.kill(victim, signal.SIGKILL)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert f"trainer ranks start again, in epoch 1: rank {rank} (process {victim}) was killed by signal 9" in output
    assert "trainer ranks train again, in epoch 1" in output
    assert weights(run_dir) == weights(straight)
    assert numbers_that_repeat(run_dir) == numbers_that_repeat(straight)


def test_a_rank_that_hangs_ends_the_run_within_its_deadline(work):
    process = start_and_wait_for_a_step(work, work / "rank_stopped", ranks(3) + ["--worker-timeout-seconds", "2"])
    victim = workers_of(process)[2]
    others = [pid for pid in workers_of(process) if pid != victim]
    begin = time.monotonic()
    os.kill(victim, signal.SIGSTOP)
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - begin < 10
    assert process.returncode == 1
    assert f"rank 2 (process {victim}) has said nothing for 2." in errors
    assert "--worker-timeout-seconds 2" in errors
    assert not any(is_running(pid) for pid in [victim, *others])


def test_no_worker_outlives_the_run(work):
    process = start_and_wait_for_a_step(work, work / "parent_killed", ranks(3))
    workers = workers_of(process)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 5
    while any(is_running(pid) for pid in workers):
        assert time.monotonic() < deadline, "a worker is still there"
        time.sleep(0.02)


def test_a_worker_without_a_controller_says_so():
    from conftest import SLIME

    done = run_slime([str(SLIME), "worker"], stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "slime worker is started by slime train" in done.stderr


def test_ctrl_c_ends_the_step_saves_and_ends_the_workers(work):
    process = start_and_wait_for_a_step(work, work / "ranks_interrupted", TWO_RANKS)
    workers = workers_of(process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert not any(is_running(pid) for pid in workers)
    assert (work / "ranks_interrupted" / "latest" / "optimizer").is_dir()


@pytest.mark.parametrize("offload", [[], ["--offload-rollout"]])
def test_each_rank_has_an_engine_over_the_weights_it_trains(work, offload):
    """What the engines say of the tokens they drew is what the ranks say of them, after several updates."""
    run_dir = work / f"engine_on_each_rank{len(offload)}"
    extra = [*TWO_RANKS, "--colocate", "--rollout-num-gpus", "2", *offload]
    done = run_slime(train_command(work, run_dir, rollouts=4, extra=extra))
    assert done.returncode == 0, done.stdout + done.stderr
    steps = numbers_that_repeat(run_dir)
    assert len(steps) == 4
    for numbers in steps.values():
        assert 0 < numbers["train/train_rollout_logprob_abs_diff"] < 1e-4
    assert steps[3]["train/grad_norm"] != steps[0]["train/grad_norm"]
    # Sixteen samples at once are more than one engine gets where there are two.
    drawn = re.search(r"its engine drew for (\d+) requests", (run_dir / "workers" / "rank_1.log").read_text())
    assert int(drawn[1]) > 0


@pytest.mark.parametrize("layout", [[], ["--pipeline-model-parallel-size", "2"]], ids=["dp", "pp"])
def test_the_engine_of_rank_0_draws_and_another_evaluates_while_two_ranks_train(work, layout):
    """It has a copy of their weights; the evaluation's engine gets the published ones in the run's own process."""
    run_dir = work / f"async_ranks_{len(layout)}"
    evaluation = ["--eval-prompt-data", "sums", str(work / "data" / "rl.jsonl@[0:8]"), "--eval-interval", "2"]
    command = train_command(work, run_dir, rollouts=4, extra=[*TWO_RANKS, *layout, *evaluation, "--check-weight-update-equal"])
    command[1] = "train-async"
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("tensors are the same in trainer and engines") == 2
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert len([row for row in rows if "eval/sums" in row]) >= 2
    assert all(0 < row["train/train_rollout_logprob_abs_diff"] < 1e-3 for row in rows if "train/loss" in row and row["step"] == 0)

"""`slime train` as a user runs it: it repeats, resumes after kill -9, and refuses what cannot work."""

import json
import random
import signal
import subprocess
import time

import pytest
from conftest import numbers_that_repeat, run_slime, train_command, weights

NUM_KILLS = 10


def trained_prompts(run_dir):
    """The prompt ordinals in the order they were trained, from the rollout files."""
    return [
        (path.name, json.loads(line)["index"])
        for path in sorted((run_dir / "rollouts").glob("step_*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def test_the_same_seed_gives_the_same_numbers_twice(work, reference):
    again = work / "again"
    assert run_slime(train_command(work, again)).returncode == 0
    assert numbers_that_repeat(again) == numbers_that_repeat(reference)
    assert weights(again) == weights(reference)


def steps_finished(run_dir):
    metrics = run_dir / "metrics.jsonl"
    return len({json.loads(line)["step"] for line in metrics.read_text().splitlines()[:-1]}) if metrics.exists() else 0


def kill_after_steps(process, run_dir, steps, seconds_more):
    """Sends SIGKILL once the run has finished that many steps and some time has gone by; False if it ended before."""
    while process.poll() is None:
        if steps_finished(run_dir) >= steps:
            time.sleep(seconds_more)
            process.kill()
            break
        time.sleep(0.005)
    return process.wait() == -signal.SIGKILL


def test_a_run_killed_at_random_instants_ends_like_one_that_was_not(work, reference):
    run_dir, rng, kills = work / "killed", random.Random(5), 0
    for _ in range(NUM_KILLS):
        process = subprocess.Popen(train_command(work, run_dir), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        steps = min(steps_finished(run_dir) + rng.randint(0, 2), 15)
        kills += kill_after_steps(process, run_dir, steps, rng.uniform(0, 0.05))
    assert kills >= NUM_KILLS // 2, f"only {kills} kills hit a run that was not over"
    done = run_slime(train_command(work, run_dir))
    assert done.returncode == 0, done.stderr
    assert weights(run_dir) == weights(reference)
    assert trained_prompts(run_dir) == trained_prompts(reference)
    assert numbers_that_repeat(run_dir) == numbers_that_repeat(reference)


def test_ctrl_c_finishes_the_step_saves_and_continues_later(work, reference):
    run_dir = work / "interrupted"
    process = subprocess.Popen(train_command(work, run_dir), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while not (run_dir / "latest").exists():
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) in (0, 130)
    assert run_slime(train_command(work, run_dir)).returncode == 0
    assert weights(run_dir) == weights(reference)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(work, reference):
    run_dir = work / "damaged"
    assert run_slime(train_command(work, run_dir, rollouts=20)).returncode == 0
    newest = (run_dir / "latest").resolve()
    data = bytearray((newest / "model.safetensors").read_bytes())
    data[len(data) // 2] ^= 1
    (newest / "model.safetensors").write_bytes(data)
    done = run_slime(train_command(work, run_dir))
    assert done.returncode == 0
    assert "damaged" in done.stdout + done.stderr
    assert weights(run_dir) == weights(reference)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (["--hf-checkpoint", "/nonexistent"], "no such directory"),
        (["--rm-type", "mathh"], "mathh"),
        (["--num-layers", "77"], "--num-layers 77"),
        (["--rollout-temperature", "0"], "--rollout-temperature 0"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_generated(work, change, says):
    done = run_slime(train_command(work, work / "refused", extra=change))
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr


def test_a_broken_line_of_the_data_is_named(work):
    broken = work / "broken.jsonl"
    lines = (work / "data" / "rl.jsonl").read_text().splitlines()
    lines[6] = lines[6][:-5]
    broken.write_text("\n".join(lines) + "\n")
    command = train_command(work, work / "refused")
    command[command.index("--prompt-data") + 1] = str(broken)
    done = run_slime(command)
    assert done.returncode == 2
    assert "broken.jsonl" in done.stderr
    assert "line 7" in done.stderr


def test_dumped_rollouts_train_to_the_same_weights(work, reference):
    run_dir, dump = work / "dumping", work / "dump"
    pattern = str(dump / "{rollout_id}.jsonl")
    assert run_slime(train_command(work, run_dir, rollouts=3, extra=["--save-debug-rollout-data", pattern])).returncode == 0
    offline = work / "offline"
    done = run_slime(train_command(work, offline, rollouts=3, extra=["--load-debug-rollout-data", pattern]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert weights(offline) == weights(run_dir)

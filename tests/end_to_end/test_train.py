"""`slime train` as a user runs it: it repeats, resumes after kill -9, and refuses what cannot work."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import SLIME, numbers_that_repeat, run_slime, train_command, weights

NUM_KILLS = 10
ROLLOUTS_OF_KILLED = 80  # so many that no run is over before its kill


def trained_prompts(run_dir):
    """The prompt ordinals in the order they were trained, from the rollout files."""
    return [
        (path.name, json.loads(line)["index"])
        for path in sorted((run_dir / "rollouts").glob("step_*.jsonl"))
        for line in path.open()
    ]


def test_the_same_seed_gives_the_same_numbers_twice(work, reference):
    again = work / "again"
    assert run_slime(train_command(work, again)).returncode == 0
    assert numbers_that_repeat(again) == numbers_that_repeat(reference)
    assert weights(again) == weights(reference)


def steps_finished(run_dir):
    metrics = run_dir / "metrics.jsonl"
    return len({json.loads(line)["step"] for line in metrics.read_text().splitlines()[:-1]}) if metrics.exists() else 0


def kill_after_steps(command, run_dir, steps, seconds_more):
    """Starts a run and sends SIGKILL once so many steps are finished and some time has gone by."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while steps_finished(run_dir) < steps:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.002)
    time.sleep(seconds_more)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "the run was over before the kill"
    return steps_finished(run_dir)


def test_a_run_killed_at_four_instants_ends_like_one_that_was_not(work):
    """At the end of a step, in the middle of one, shortly before its end, and while it loads."""
    check_killed(work, [(1, 0.0), (1, 0.5), (2, 0.9), (0, 0.0)])


@pytest.mark.nightly
def test_a_run_killed_at_random_instants_ends_like_one_that_was_not(work):
    """Ten kills within the two steps after one or two new ones, and three while a run loads: every one hits."""
    rng = random.Random(5)
    plan = [rng.randint(1, 2) for _ in range(NUM_KILLS)]
    for at in (1, 5, 9):
        plan.insert(at, 0)
    check_killed(work, [(steps, rng.uniform(0, 2)) for steps in plan])


def check_killed(work, plan):
    """Kills a run after so many new steps and so many times the length of a step, for each of the plan; every one hits."""
    begin = time.monotonic()
    undisturbed = work / f"undisturbed-{len(plan)}"
    assert run_slime(train_command(work, undisturbed, rollouts=ROLLOUTS_OF_KILLED)).returncode == 0
    step_seconds = (time.monotonic() - begin) / ROLLOUTS_OF_KILLED
    run_dir = work / f"killed-{len(plan)}"
    command = train_command(work, run_dir, rollouts=ROLLOUTS_OF_KILLED)
    finished = []
    for steps, more in plan:
        # A run that goes on repeats at most the step that the kill before interrupted.
        finished.append(kill_after_steps(command, run_dir, steps_finished(run_dir) + steps, more * step_seconds))
    assert len(set(finished)) >= sum(steps > 0 for steps, _ in plan), "each of these kills came after new steps"
    assert finished[-1] < ROLLOUTS_OF_KILLED - 1
    done = run_slime(command)
    assert done.returncode == 0, done.stderr
    assert weights(run_dir) == weights(undisturbed)
    assert trained_prompts(run_dir) == trained_prompts(undisturbed)
    assert numbers_that_repeat(run_dir) == numbers_that_repeat(undisturbed)


def test_ctrl_c_ends_the_step_saves_and_continues_later(work, reference):
    run_dir = work / "interrupted"
    process = subprocess.Popen(train_command(work, run_dir), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while not (run_dir / "latest").exists():
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130  # with 0 it would have ended before the signal
    assert run_slime(train_command(work, run_dir)).returncode == 0
    assert weights(run_dir) == weights(reference)


def test_ctrl_c_during_an_evaluation_saves_what_was_trained(work):
    run_dir = work / "interrupted-evaluation"
    evaluation = ["--eval-prompt-data", "held", work / "data" / "rl.jsonl", "--eval-interval", 1, "--skip-eval-before-train",
                  "--n-samples-per-eval-prompt", 200, "--save-interval", 1000]
    process = subprocess.Popen(train_command(work, run_dir) + [str(word) for word in evaluation], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE)
    while not (run_dir / "metrics.jsonl").exists() or not (run_dir / "metrics.jsonl").read_text():
        time.sleep(0.005)
        assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGINT)  # the step is recorded, its evaluation goes on
    assert process.wait(timeout=60) == 130
    assert (run_dir / "latest" / "COMMITTED").exists()
    assert "eval/held" not in (run_dir / "metrics.jsonl").read_text()


def start_and_wait_for_a_step(work, run_dir, **options):
    process = subprocess.Popen(train_command(work, run_dir, rollouts=500, extra=["--save-interval", "1000"]), **options)
    while not (run_dir / "metrics.jsonl").exists() or not (run_dir / "metrics.jsonl").read_text():
        time.sleep(0.01)
        assert process.poll() is None
    return process


def test_a_closed_terminal_ends_the_run_with_a_checkpoint(work):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what the run inherits, also under nohup
    run_dir = work / "hangup"
    process = start_and_wait_for_a_step(work, run_dir, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(2):  # the kernel tells it, and the shell
        process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=60) == 130
    assert (run_dir / "latest" / "COMMITTED").exists()


def test_a_run_whose_output_nobody_reads_any_more_goes_on(work):
    run_dir = work / "head"
    process = subprocess.Popen(train_command(work, run_dir, rollouts=6), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout.readline()
    process.stdout.close()  # slime train ... 2>&1 | head -n 1
    assert process.wait(timeout=120) == 0
    assert len((run_dir / "metrics.jsonl").read_text().splitlines()) == 6
    assert (run_dir / "latest").resolve().name == "iter_0000005"


def test_a_filter_whose_reader_has_seen_enough_ends_without_a_word(work):
    lines = work / "many-answers.jsonl"
    lines.write_text('{"response": "1", "label": "1"}\n' * 20000)
    command = [str(SLIME), "score", "--rm-type", "math", str(lines)]  # scores of more bytes than a pipe holds
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) == 141
    assert process.stderr.read() == b""


def test_a_link_that_was_left_behind_is_set_when_the_run_goes_on(work):
    run_dir = work / "left-behind"
    assert run_slime(train_command(work, run_dir, rollouts=3)).returncode == 0
    newest = (run_dir / "latest").resolve()
    (run_dir / "latest").unlink()  # as a process leaves it that dies between checkpoint and link
    assert run_slime(train_command(work, run_dir, rollouts=3)).returncode == 0
    assert (run_dir / "latest").resolve() == newest


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
        (["--start-rollout-id", "25"], "--start-rollout-id 25: nothing is left to do"),
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


def contents(folder):
    """Every file below a folder but the lock, which names the process that was there last."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.name != "lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_loading_a_folder_without_checkpoints_is_an_error_that_loses_nothing(work):
    run_dir = work / "loading"
    assert run_slime(train_command(work, run_dir, rollouts=3)).returncode == 0
    before = contents(run_dir)
    done = run_slime(train_command(work, run_dir, rollouts=3, extra=["--load", str(work / "data")]))
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"--load {work / 'data'}: holds no checkpoint (a folder iter_NNNNNNN)" in done.stderr
    assert contents(run_dir) == before
    done = run_slime(train_command(work, work / "never_was", extra=["--load", str(run_dir)]))
    assert f"there are some in --load {run_dir / 'checkpoints'}" in done.stderr


def test_results_are_overwritten_only_when_it_is_asked_for(work):
    run_dir, other = work / "results", work / "results_other"
    assert run_slime(train_command(work, run_dir, rollouts=3)).returncode == 0
    assert run_slime(train_command(work, other, rollouts=1)).returncode == 0
    before = contents(run_dir)
    loading = ["--load", str(other / "checkpoints")]
    done = run_slime(train_command(work, run_dir, rollouts=3, extra=loading))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "leave --load out to go on from" in done.stderr
    assert contents(run_dir) == before
    done = run_slime(train_command(work, run_dir, rollouts=3, extra=[*loading, "--overwrite"]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [file.name for file in sorted((run_dir / "rollouts").iterdir())] == ["step_000001.jsonl", "step_000002.jsonl"]
    assert weights(run_dir) == before["checkpoints/iter_0000002/model.safetensors"]


def test_another_runs_checkpoint_begins_a_run_that_resumes_by_itself(work, reference):
    first, second = work / "begun", work / "taken_over"
    assert run_slime(train_command(work, first, rollouts=4)).returncode == 0
    loading = ["--load", str(first / "checkpoints")]
    assert run_slime(train_command(work, second, rollouts=8, extra=loading)).returncode == 0
    done = run_slime(train_command(work, second, rollouts=20))
    assert done.returncode == 0, done.stdout + done.stderr
    assert weights(second) == weights(reference)


def test_a_run_has_one_process_which_the_second_is_told(work):
    run_dir = work / "owned"
    command = train_command(work, run_dir, rollouts=1000)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (run_dir / "latest").exists():
        time.sleep(0.02)
        assert process.poll() is None
    done = run_slime(command)
    elsewhere = train_command(work, work / "owned_not", extra=["--save", str(run_dir / "checkpoints")])
    done_elsewhere = run_slime(elsewhere)
    process.kill()
    process.wait()
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"--run-dir {run_dir}: belongs to a run that goes on: process {process.pid} on " in done.stderr
    assert done_elsewhere.returncode == 2
    assert f"process {process.pid} on " in done_elsewhere.stderr
    done = json.loads((run_dir / "latest" / "run.json").read_text())["iteration"] + 1
    assert run_slime(train_command(work, run_dir, rollouts=done + 1)).returncode == 0  # the kill gave the lock back


def test_the_link_to_the_newest_checkpoint_never_dangles(work):
    run_dir = work / "linked"
    command = train_command(work, run_dir, rollouts=60, extra=["--keep-checkpoints", "1", "--rollout-max-response-len", "1"])
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    looks, seen = 0, set()
    while process.poll() is None:
        # What is seen at an instant is what a kill at that instant leaves.
        if (run_dir / "latest").is_symlink():
            looks += 1
            try:
                seen.add(os.stat(run_dir / "latest" / "COMMITTED").st_ino)
            except FileNotFoundError:
                pytest.fail(f"latest names {os.readlink(run_dir / 'latest')}")
    assert process.returncode == 0
    assert looks > 1000
    assert len(seen) > 10


FAKE_WANDB = """
import json, os
told = open(os.path.join(os.path.dirname(__file__), "told"), "a", buffering=1)
def init(**options): print(json.dumps(options), os.environ["WANDB_API_KEY"][::-1], open("/proc/self/cmdline").read(), file=told)
def define_metric(*a, **k): pass
def log(record): pass
def finish(): pass
"""


def test_a_key_on_the_command_line_is_written_nowhere(work, tmp_path):
    run_dir, key = tmp_path / "run", "kPq7hunter2Zx"
    (tmp_path / "wandb.py").write_text(FAKE_WANDB)
    secrets = ["--use-wandb", "--wandb-key", key, "--wandb-host", f"https://me:{key}@wandb.test", "--judge-api-key", key, "--allow-unknown-flags"]
    command = train_command(work, run_dir, rollouts=200, extra=[*secrets, "--actor-num-gpus-per-node", "2", "--micro-batch-size", "1"])
    output = tmp_path / "output"
    with output.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    while not (run_dir / "latest").exists():
        time.sleep(0.02)
        assert process.poll() is None, output.read_text()
    arguments = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]) == process.pid or folder.name == str(process.pid):
                arguments.append((folder / "cmdline").read_text())
        except (FileNotFoundError, ProcessLookupError):
            pass  # it ended meanwhile
    process.terminate()
    assert process.wait(timeout=60) == 130, output.read_text()
    assert run_slime([str(SLIME), "report", str(run_dir)]).returncode == 0
    assert len(arguments) >= 3  # the run, its other rank, W&B
    assert key not in "".join(arguments)
    assert key[::-1] in (tmp_path / "told").read_text()  # W&B has it, from its environment
    assert key not in (tmp_path / "told").read_text()
    assert key not in output.read_text()
    assert (run_dir / "report.html").exists()
    assert [name for name, content in contents(run_dir).items() if key.encode() in content] == []
    assert json.loads((run_dir / "run.json").read_text())["flags"]["--wandb-key"] == "***"

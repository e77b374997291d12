"""Engines in processes of their own (`--rollout-num-gpus`): what they draw is what one engine draws, and what happens to them
changes nothing."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import ROOT, SLIME, metric, run_slime, train_command, weights

TWO_ENGINES = ["--rollout-num-gpus", "2"]
TWO_RANKS = [*TWO_ENGINES, "--rollout-num-gpus-per-engine", "2"]  # of one engine
COMES_BACK = ["--use-fault-tolerance", "--max-restarts", "1000"]
ENDS = [str(token) for token in range(44)]  # one in six tokens ends a response: lengths differ a lot
STEPS = 80


def command_for(work, run_dir, *, form="train", rollouts=STEPS, extra=()):
    command = train_command(work, run_dir, rollouts=rollouts)
    command[1] = form
    command[command.index("--rollout-max-response-len") + 1] = "60"
    return [*command, "--rollout-stop-token-ids", *ENDS, *extra]


def engines_of(process):
    """Process ids of the engines by their logs' names, as many as there are now."""
    found = {}
    try:
        children = Path(f"/proc/{process.pid}/task").glob("*/children")
        pids = [int(word) for file in children for word in file.read_text().split()]
        for pid in pids:
            log = os.readlink(f"/proc/{pid}/fd/1")
            if Path(log).name.startswith("engine_"):
                found[Path(log).stem] = pid
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        pass
    return found


def audit(run_dir, steps):
    """Every prompt and token that was given out is accounted for."""
    done = run_slime([str(SLIME), "ledger", str(run_dir), "--json"])
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    at = found["checkpoint"]
    assert at["step"] == steps - 1 and at["prompts"]["trained"] == steps * 4
    for counts, whole in ((at["tokens"], "generated"), (at["prompts"], "given_out")):
        assert counts[whole] == sum(number for name, number in counts.items() if name != whole) > 0


def responses(run_dir):
    """What was trained: step -> (sample, tokens), in the order of the samples."""
    steps = {}
    for path in (run_dir / "rollouts").glob("step_*.jsonl"):
        samples = [json.loads(line) for line in path.open()]
        steps[path.stem] = sorted((sample["index"], sample["tokens"]) for sample in samples)
    return steps


def steps_done(run_dir):
    try:
        return int(os.readlink(run_dir / "latest").rsplit("_", 1)[1])
    except FileNotFoundError:
        return -1


def children_of(pid):
    return [int(word) for file in Path(f"/proc/{pid}/task").glob("*/children") for word in file.read_text().split()]


def is_running(pid):
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


class Disturbance:
    """Sends a signal to an engine of a run, as often as asked for: each time behind a random step, a random moment later. The first
    comes while engines start."""

    def __init__(self, process, run_dir, seed, number, count):
        self.process, self.run_dir, self.number = process, run_dir, number
        self.chance = random.Random(seed)
        self.steps = [-1, *sorted(self.chance.sample(range(STEPS - 10), count - 1))]
        self.num_sent = 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        for step in self.steps:
            self.wait_until(lambda step=step: steps_done(self.run_dir) >= step)
            time.sleep(self.chance.uniform(0, 0.1))
            while self.process.poll() is None and not self.send():
                time.sleep(0.002)

    def wait_until(self, condition):
        while self.process.poll() is None and not condition():
            time.sleep(0.002)

    def send(self):
        engines = engines_of(self.process)
        if not engines:
            return False
        try:
            os.kill(engines[self.chance.choice(sorted(engines))], self.number)
        except ProcessLookupError:
            return False
        self.num_sent += 1
        return True


def run_disturbed(command, run_dir, *, seed, number=signal.SIGKILL, count=6):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    disturbance = Disturbance(process, run_dir, seed, number, count)
    try:
        output, _ = process.communicate(timeout=280)
    finally:
        process.kill()
        disturbance.thread.join()
    assert process.returncode == 0, output
    assert disturbance.num_sent == count, "the faults were to happen"
    return output


@pytest.fixture(scope="module")
def one_engine(work):
    """A run with the engine in its own process."""
    run_dir = work / "one_engine"
    done = run_slime(command_for(work, run_dir))
    assert done.returncode == 0, done.stdout + done.stderr
    return run_dir


def test_two_engines_draw_and_train_what_one_does(work, one_engine):
    run_dir = work / "two_engines"
    done = run_slime(command_for(work, run_dir, extra=TWO_ENGINES))
    assert done.returncode == 0, done.stdout + done.stderr
    for index in (0, 1):
        assert "the engine is ready" in (run_dir / "workers" / f"engine_{index}.log").read_text()
    assert responses(run_dir) == responses(one_engine)
    assert weights(run_dir) == weights(one_engine)
    audit(run_dir, STEPS)


PUBLISHING = {
    "delta": ["--update-weight-mode", "delta", "--update-weight-buffer-size", "1000"],
    "disk": ["--update-weight-mode", "disk", "--update-weight-disk-keep-files"],
    "delta-disk": ["--update-weight-mode", "delta", "--update-weight-transport", "disk", "--update-weight-delta-encoding", "overwrite"],
}
SEEN = """
import os

def post_write(args, version_dir, rollout_engines):
    assert os.path.exists(os.path.join(version_dir, "delta.json"))
    print("written", os.path.basename(version_dir), flush=True)
"""


@pytest.mark.parametrize("name", PUBLISHING)
def test_weights_that_come_in_another_way_are_the_same(work, one_engine, name):
    run_dir, folder = work / f"publishing_{name}", work / f"weights_{name}"
    extra = [*TWO_ENGINES, *PUBLISHING[name], "--check-weight-update-equal"]
    if "disk" in name:
        extra += ["--update-weight-disk-dir", str(folder)]
    if name == "delta-disk":
        (work / "written.py").write_text(SEEN)
        extra += ["--custom-update-weight-post-write-path", str(work / "written.py")]
    done = run_slime(command_for(work, run_dir, rollouts=4, extra=extra))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("--check-weight-update-equal: ") == 2, "at the beginning, and behind the first update"
    drawn = responses(one_engine)
    assert responses(run_dir) == {step: drawn[step] for step in responses(run_dir)}
    sent, density = metric(run_dir, "perf/update_weights_wire_bytes"), metric(run_dir, "perf/update_weights_density")
    assert len(sent) == 4 and sent[0] == 0 and min(sent[1:]) > 0, "the first rollout is before the first update"
    assert all(0 < each <= 1 for each in density)
    if name == "disk":
        assert sorted(each.name for each in folder.iterdir()) == [f"weight_v{version:06}" for version in range(1, 5)]
    if name == "delta-disk":
        assert list(folder.iterdir()) == []
        assert "written weight_v000001" in "".join(each.read_text() for each in (run_dir / "plugin").glob("*.log"))


@pytest.fixture(scope="module")
def two_heads(work):
    """The same with a model of two key-value heads, and what one process draws with it."""
    folder = work / "two_heads"
    folder.mkdir()
    (folder / "data").symlink_to(work / "data")
    maker = [sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model", "--hidden", "128"]
    subprocess.run(maker, check=True, stdout=subprocess.DEVNULL)
    done = run_slime(command_for(folder, folder / "one_process", rollouts=10))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_an_engine_of_two_ranks_draws_what_one_process_does(two_heads):
    run_dir = two_heads / "two_ranks"
    done = run_slime(command_for(two_heads, run_dir, rollouts=10, extra=TWO_RANKS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (run_dir / "workers" / "engine_0_rank_1.log").exists()
    assert responses(run_dir) == responses(two_heads / "one_process")
    audit(run_dir, 10)


def test_a_rank_of_an_engine_that_is_killed_is_the_engines_death(two_heads):
    run_dir = two_heads / "killed_ranks"
    command = command_for(two_heads, run_dir, rollouts=10, extra=[*TWO_RANKS, *COMES_BACK])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for step, dies in ((1, "a further rank"), (4, "the first rank")):
            wait_for(lambda step=step: steps_done(run_dir) >= step, process)
            engine = None
            while engine is None or not (ranks := children_of(engine)):
                engine = engines_of(process).get("engine_0")
            os.kill(engine if dies == "the first rank" else ranks[0], signal.SIGKILL)
            wait_for(lambda engine=engine: engines_of(process).get("engine_0") not in (None, engine), process)
            wait_for(lambda rank=ranks[0]: not is_running(rank), process)  # they end together
        output, _ = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 0, output
    assert "engine_0_rank 1 (process" in output and "was killed by signal 9" in output
    assert output.count("engine 0 serves again") == 2
    assert responses(run_dir) == responses(two_heads / "one_process")
    audit(run_dir, 10)


@pytest.mark.nightly
def test_engines_that_are_killed_at_random_instants_change_nothing(work, one_engine):
    run_dir = work / "killed_engines"
    output = run_disturbed(command_for(work, run_dir, extra=[*TWO_ENGINES, *COMES_BACK]), run_dir, seed=1)
    assert "was killed by signal 9" in output and "serves again" in output
    assert responses(run_dir) == responses(one_engine)
    audit(run_dir, STEPS)


FORMS = {
    "partial": ("train", ["--partial-rollout", "--over-sampling-batch-size", "8"]),
    "async": ("train-async", ["--max-staleness", "2"]),
    "async-interrupt": ("train-async", ["--max-staleness", "2", "--update-mode", "interrupt"]),
}


@pytest.mark.parametrize("name", FORMS)
def test_with_engines_that_die_a_run_finishes_and_its_ledger_adds_up(work, name):
    form, extra = FORMS[name]
    run_dir = work / f"dying_{name}"
    command = command_for(work, run_dir, form=form, rollouts=STEPS, extra=[*extra, *TWO_ENGINES, *COMES_BACK])
    run_disturbed(command, run_dir, seed=len(name))
    audit(run_dir, STEPS)


def test_an_engine_that_is_stopped_is_found_by_its_silence_and_replaced(work, one_engine):
    run_dir = work / "stopped_engines"
    extra = [*TWO_ENGINES, *COMES_BACK, "--worker-timeout-seconds", "1"]
    output = run_disturbed(command_for(work, run_dir, extra=extra), run_dir, seed=2, number=signal.SIGSTOP, count=3)
    assert "has said nothing for 1." in output
    assert responses(run_dir) == responses(one_engine)


def test_without_fault_tolerance_the_others_go_on_and_the_last_one_ends_the_run(work):
    run_dir = work / "no_tolerance"
    process = subprocess.Popen(
        command_for(work, run_dir, rollouts=100_000, extra=TWO_ENGINES), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        step = run_dir / "latest"
        wait_for(step.exists, process)
        engines = engines_of(process)
        os.kill(engines["engine_0"], signal.SIGKILL)
        before = os.readlink(step)
        wait_for(lambda: os.readlink(step) != before, process)
        os.kill(engines["engine_1"], signal.SIGKILL)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1, output
    assert "engine 0 is gone, and the others go on without it (--use-fault-tolerance starts it again)" in output
    assert "the last engine is gone" in output


def test_an_engine_that_dies_again_and_again_ends_the_run_with_its_history(work):
    run_dir = work / "again_and_again"
    extra = [*TWO_ENGINES, "--use-fault-tolerance", "--max-restarts", "2"]
    process = subprocess.Popen(
        command_for(work, run_dir, rollouts=100_000, extra=extra), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        wait_for((run_dir / "latest").exists, process)
        killed = set()
        while process.poll() is None and len(killed) < 100:
            pid = engines_of(process).get("engine_0")
            if pid is not None and pid not in killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            time.sleep(0.002)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1, output
    assert "engine 0 was started again 2 times and drew nothing (--max-restarts 2)" in output


def test_no_engine_outlives_the_run(work):
    process = subprocess.Popen(
        command_for(work, work / "ends", rollouts=100_000, extra=TWO_ENGINES), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for((work / "ends" / "latest").exists, process)
    engines = engines_of(process).values()
    assert len(engines) == 2
    process.kill()
    process.wait()
    deadline = time.monotonic() + 5
    while any(is_running(pid) for pid in engines):
        assert time.monotonic() < deadline, "an engine is still there"
        time.sleep(0.02)


def wait_for(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_cannot_be_is_refused(work):
    for extra, why in (
        (["--rollout-num-gpus", "3", "--rollout-num-gpus-per-engine", "2"], "--rollout-num-gpus 3 is no multiple of"),
        (["--rollout-num-gpus", "3", "--rollout-num-gpus-per-engine", "3"], "--rollout-num-gpus-per-engine 3: does not divide"),
        (["--rollout-num-gpus", "0"], "--rollout-num-gpus 0: should be at least 1"),
        ([*TWO_ENGINES, "--rollout-health-check-interval", "0"], "--rollout-health-check-interval 0: should be above 0"),
        ([*TWO_ENGINES, "--max-restarts", "-1"], "--max-restarts -1: should be between 0 and 1000000"),
    ):
        done = run_slime(command_for(work, work / "refused", extra=extra))
        assert done.returncode == 2, done.stdout + done.stderr
        assert why in done.stderr

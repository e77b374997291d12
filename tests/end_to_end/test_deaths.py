"""kill -9 and SIGSTOP of each process of a run at random instants: it finishes, trains every prompt once, and ends with the weights
of a run that nobody disturbed.

`pytest tests/end_to_end/test_deaths.py --instants 20 -s` sends each signal to each role at twenty instants and prints how long each
took to come back; without the option it is a few.
"""

import json
import os
import queue
import random
import re
import signal
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest
from conftest import SLIME, numbers_that_repeat, run_slime, train_command, weights

STEPS = 150  # more where every role is stopped again and again: an engine that is silent does not hold up the others
WORKERS = ["rank_0", "rank_1", "engine_0", "engine_1"]
LAYOUT = ["--actor-num-gpus-per-node", "2", "--rollout-num-gpus", "2", "--use-fault-tolerance", "--max-restarts", "20"]
STOPPED_AFTER = 2  # seconds of silence
IS_BACK = {"rank": "trainer ranks train again", "engine": "serves again"}
LIMITS = {"rank": 15, "engine": 10}  # seconds
ENDS = [str(token) for token in range(44)]  # one in six tokens ends a response


def command_for(work, run_dir, form="train", steps=None, extra=()):
    steps = STEPS if steps is None else steps
    command = train_command(work, run_dir, rollouts=steps)
    command[1] = form
    command[command.index("--rollout-max-response-len") + 1] = "40"
    command[command.index("--save-interval") + 1] = "3"  # steps behind a checkpoint are made again
    silence = ["--worker-timeout-seconds", str(STOPPED_AFTER)]
    return [*command, "--rollout-stop-token-ids", *ENDS, *LAYOUT, *silence, *extra]


def workers_of(run_dir):
    """Process ids by role: whose output goes to RUN_DIR/workers/ROLE.log."""
    found = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            log = os.readlink(process / "fd" / "1")
            is_there = (process / "stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
        except OSError:
            continue
        if is_there and log.startswith(f"{run_dir}/workers/"):
            found[Path(log).stem] = int(process.name)
    return found


def assert_nobody_is_left(run_dir):
    deadline = time.monotonic() + 5
    while left := workers_of(run_dir):
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.02)


class Run:
    """A run, the lines that it prints with the times at which they came, and faults that are sent to it."""

    def __init__(self, command, run_dir, seed):
        self.command, self.run_dir = command, run_dir
        self.chance = random.Random(seed)
        self.output = ""
        self.start()

    def start(self):
        self.lines = queue.Queue()
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put((time.monotonic(), line))

    def is_over(self):
        return self.process.poll() is not None

    def wait_for_line(self, text, limit):
        """When a line with `text` came; None: the run ended without one."""
        deadline = time.monotonic() + limit
        while True:
            try:
                at, line = self.lines.get(timeout=0.05)
            except queue.Empty:
                if self.is_over() and self.lines.empty():
                    return None
                assert time.monotonic() < deadline, f"no line with '{text}' within {limit} s:\n{self.output}"
                continue
            self.output += line
            if text in line:
                return at

    def steps_done(self):
        try:
            return (self.run_dir / "metrics.jsonl").read_text().count("\n")
        except FileNotFoundError:
            return 0

    def wait_for_a_random_instant(self):
        """Some steps further on, and a moment later."""
        step = self.steps_done() + self.chance.randint(1, 3)
        while not self.is_over() and self.steps_done() < step:
            time.sleep(0.002)
        time.sleep(self.chance.uniform(0, 0.1))

    def send(self, role, number):
        """Sends the signal; how long until the role was there again. None: the run was over before."""
        while not self.is_over():
            pid = workers_of(self.run_dir).get(role)
            if pid is not None:
                break
        else:
            return None
        while not self.lines.empty():
            self.output += self.lines.get()[1]
        sent = time.monotonic()
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return None
        kind = role.split("_")[0]
        back = self.wait_for_line(IS_BACK[kind], 120)
        return None if back is None else back - sent

    def finish(self, limit=240):
        assert self.wait_for_line("no line is this one", limit) is None
        assert self.process.wait() == 0, self.output
        assert_nobody_is_left(self.run_dir)

    def kill(self):
        self.process.kill()
        self.process.wait()


def read_weights(run_dir):
    """All numbers of the checkpoint, float32."""
    data = weights(run_dir)
    (size,) = struct.unpack("<Q", data[:8])
    body = data[8 + size :]
    return struct.unpack(f"<{len(body) // 4}f", body)


def responses(run_dir):
    steps = {}
    for path in (run_dir / "rollouts").glob("step_*.jsonl"):
        samples = [json.loads(line) for line in path.open()]
        steps[path.stem] = sorted((sample["index"], sample["tokens"]) for sample in samples)
    return steps


def audit(run_dir):
    """Each prompt and token is accounted for, and no prompt was trained twice."""
    done = run_slime([str(SLIME), "ledger", str(run_dir), "--json"])
    assert done.returncode == 0, done.stdout + done.stderr
    at = json.loads(done.stdout)["checkpoint"]
    assert at["step"] == STEPS - 1 and at["prompts"]["trained"] == STEPS * 4
    for counts, whole in ((at["tokens"], "generated"), (at["prompts"], "given_out")):
        assert counts[whole] == sum(number for name, number in counts.items() if name != whole) > 0
    trained = [index for samples in responses(run_dir).values() for index, _ in samples]
    assert len(trained) == len(set(trained)) == STEPS * 16
    rows = [json.loads(line)["step"] for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert rows == list(range(STEPS)), "each step has one row"


def assert_same_training(run_dir, undisturbed, *, engines_died):
    """Every token is that of the run without faults, because a sample's draws are keyed by its place in the run. So are weights and
    numbers, to the bit: two ranks have one order of sums. Where an engine died, what went on elsewhere had its keys and values
    computed in another order, so the engine's log-probs, which are only shown here, differ in their last bits."""
    assert responses(run_dir) == responses(undisturbed)
    assert read_weights(run_dir) == pytest.approx(read_weights(undisturbed), rel=0, abs=0)
    got, expected = numbers_that_repeat(run_dir), numbers_that_repeat(undisturbed)
    for step, numbers in expected.items():
        for name in numbers:
            if name.startswith("train/") and not (engines_died and "rollout" in name):
                assert got[step][name] == numbers[name], (step, name)


def report(times, name):
    for role, seconds in times:
        print(f"{name}: {role} was back after {seconds:.1f} s")
        assert seconds < LIMITS[role.split("_")[0]], (role, seconds)


@pytest.fixture(scope="module", autouse=True)
def long_enough(request):
    global STEPS
    if request.config.getoption("--instants") is not None:
        STEPS = 300


@pytest.fixture(scope="module")
def undisturbed(work):
    run_dir = work / "deaths_none"
    done = run_slime(command_for(work, run_dir))
    assert done.returncode == 0, done.stdout + done.stderr
    audit(run_dir)
    assert_nobody_is_left(run_dir)
    return run_dir


def disturb(work, name, faults, seed, form="train", extra=()):
    """A run in which these faults happen one after the other."""
    run_dir = work / name
    run = Run(command_for(work, run_dir, form, extra=extra), run_dir, seed)
    times = []
    try:
        for role, number in faults:
            run.wait_for_a_random_instant()
            seconds = run.send(role, number)
            if seconds is not None:
                times.append((role, seconds))
        run.finish()
    finally:
        run.kill()
    audit(run_dir)
    report(times, f"{name}, {form}")
    return run_dir, times


def plans(instants):
    """Lists of faults, a run each: every role and signal `instants` times."""
    if instants is None:
        chance = random.Random(1)
        kills, stops = chance.sample(WORKERS, 4), [chance.choice(WORKERS[:2])]
        return [[(role, signal.SIGKILL) for role in kills] + [(role, signal.SIGSTOP) for role in stops]]
    chance = random.Random(instants)
    faults = [(role, number) for role in WORKERS for number in (signal.SIGKILL, signal.SIGSTOP) for _ in range(instants)]
    chance.shuffle(faults)
    return [faults[i : i + 5] for i in range(0, len(faults), 5)]


def test_workers_that_die_or_hang_change_nothing(work, undisturbed, instants):
    num_sent = 0
    for index, faults in enumerate(plans(instants)):
        run_dir, times = disturb(work, f"deaths_{index}", faults, seed=index)
        num_sent += len(times)
        engines_died = any(role.startswith("engine") for role, _ in faults)
        assert_same_training(run_dir, undisturbed, engines_died=engines_died)
        assert len(times) >= len(faults) - 1, "the faults were to happen"
    print(f"{num_sent} faults")


def test_an_asynchronous_run_loses_and_repeats_no_prompt(work, instants):
    for index, faults in enumerate(plans(instants)):
        faults = [fault for fault in faults if fault[0].startswith("rank")] if instants is None else faults
        _, times = disturb(work, f"async_deaths_{index}", faults, seed=index, form="train-async", extra=["--max-staleness", "2"])
        assert len(times) >= len(faults) - 1, "the faults were to happen"


def test_when_the_controller_dies_everybody_ends_and_the_same_command_goes_on(work, undisturbed, instants):
    for index in range(instants or 1):
        run_dir = work / f"controller_{index}"
        run = Run(command_for(work, run_dir), run_dir, seed=index)
        try:
            run.wait_for_a_random_instant()
            run.process.send_signal(signal.SIGSTOP)
            time.sleep(run.chance.uniform(0.5, 1.5) * STOPPED_AFTER)  # its own absence is nobody's silence
            run.process.send_signal(signal.SIGCONT)
            run.wait_for_a_random_instant()
            run.kill()
            assert_nobody_is_left(run_dir)
            run.start()
            run.finish()
        finally:
            run.kill()
        audit(run_dir)
        assert_same_training(run_dir, undisturbed, engines_died=False)


def test_ranks_that_die_again_and_again_end_the_run_with_their_history(work):
    run_dir = work / "again_and_again"
    command = command_for(work, run_dir, extra=["--max-restarts", "1"])
    run = Run(command, run_dir, seed=0)
    try:
        killed = set()
        while not run.is_over():
            pid = workers_of(run_dir).get("rank_1")
            if pid is not None and pid not in killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            time.sleep(0.002)
        run.wait_for_line("no line is this one", 10)
    finally:
        run.kill()
    assert run.process.returncode == 1, run.output
    assert "trainer ranks were started again 1 times, and no further step was trained (--max-restarts 1)" in run.output
    assert run.output.count("was killed by signal 9") >= 2
    assert len(killed) == 2
    assert_nobody_is_left(run_dir)


def test_no_token_is_on_a_command_line_and_no_socket_listens_beyond_loopback(work, monkeypatch):
    run_dir = work / "token"
    monkeypatch.setenv("SLIME_RUN_TOKEN", "ab" * 32)  # of a shell in which runs on several hosts are started
    run = Run(command_for(work, run_dir, steps=100_000), run_dir, seed=0)
    try:
        run.wait_for_a_random_instant()
        workers = workers_of(run_dir)
        assert sorted(workers) == sorted(WORKERS)
        for pid in workers.values():
            environment = dict(setting.split(b"=", 1) for setting in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if setting)
            assert environment[b"SLIME_RUN_TOKEN"] == b"", "it had one, and has overwritten it"
            for process in [run.process.pid, *workers.values()]:
                for shown in ("cmdline", "environ"):
                    assert not re.search(rb"[0-9a-f]{64}", Path(f"/proc/{process}/{shown}").read_bytes())
            for table, loopback in (("tcp", "0100007F"), ("tcp6", "00000000000000000000000001000000")):
                inodes = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink() and os.path.lexists(fd)}
                for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                        assert fields[1].split(":")[0] in (loopback, "0000000000000000FFFF00000100007F"), line
    finally:
        run.kill()
    assert_nobody_is_left(run_dir)

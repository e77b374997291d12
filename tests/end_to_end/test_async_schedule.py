"""`--deterministic-schedule`: an asynchronous run is a function of its seeds, whatever the machine does meanwhile."""

import json
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from conftest import numbers_that_repeat, run_slime, weights
from test_async import async_command, check_bound, samples


class SlowJudge(BaseHTTPRequestHandler):
    """Scores a response by its length, each after a time that nobody can know."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(random.SystemRandom().uniform(0, 0.03))
        body = str(len(asked["response"]) % 3).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def slow_judge():
    server = ThreadingHTTPServer(("127.0.0.1", 0), SlowJudge)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def ledger(run_dir):
    """The records of the ledger, in their order, without their checksums."""
    return [json.loads(line.split(b" ", 1)[1]) for line in (run_dir / "ledger.jsonl").read_bytes().splitlines()]


def drawn(run_dir):
    """What was trained, in its order, without how long it took."""
    return [(step, {k: v for k, v in sample.items() if not k.endswith("_seconds")}) for step, sample in samples(run_dir)]


# Busy for a while, idle for a while, as nobody can know.
LOAD = """
import random, time
while True:
    end = time.perf_counter() + random.uniform(0, 0.1)
    while time.perf_counter() < end: pass
    time.sleep(random.uniform(0, 0.1))
"""


def run_often(work, name, extra, *, times=2):
    """The same command so many times: once alone, then all others at once, beside something else that keeps the machine busy."""
    folders = [work / f"schedule-{name}-{i}" for i in range(times)]
    schedule = ["--deterministic-schedule", "--schedule-round", "4", *extra]

    def run(run_dir):
        done = run_slime(async_command(work, run_dir, extra=schedule))
        assert done.returncode == 0, done.stdout + done.stderr

    run(folders[0])
    load = subprocess.Popen([sys.executable, "-c", LOAD])
    try:
        with ThreadPoolExecutor(max(1, times - 1)) as at_once:
            list(at_once.map(run, folders[1:]))
    finally:
        load.kill()
        load.wait()
    return folders


def check_equal(folders):
    first = folders[0]
    for other in folders[1:]:
        assert drawn(other) == drawn(first)
        assert ledger(other) == ledger(first)
        assert weights(other) == weights(first)


def test_five_runs_with_slow_rewards_are_equal_bit_for_bit(work, slow_judge):
    remote = ["--rm-type", "remote_rm", "--rm-url", slow_judge, "--reward-threads", "4"]
    folders = run_often(work, "rewards", remote, times=5)
    check_bound(folders[0], 1)
    check_equal(folders)
    versions = [sample["weight_versions"] for _, sample in samples(folders[0])]
    assert any(len(runs) > 1 for runs in versions), "responses go on behind updates"


FORMS = {
    "far": (2, 2, ["--max-staleness", "2", "--update-weights-interval", "2"]),
    "finish": (2, 1, ["--max-staleness", "2", "--async-order", "finish", "--schedule-train-rounds", "3"]),
    "interrupt": (1, 1, ["--update-mode", "interrupt"]),
    "drain": (1, 1, ["--update-mode", "drain"]),
    "colocated": (1, 1, ["--colocate"]),
    "threads": (1, 1, ["--num-threads", "2", "--rollout-num-threads", "1"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_repeats(work, form):
    bound, interval, extra = FORMS[form]
    folders = run_often(work, form, extra, times=3)
    check_bound(folders[0], bound, interval)
    check_equal(folders)


def test_generation_goes_on_as_far_as_the_rounds_of_a_training_say(work):
    """More rounds while a step is trained: more tokens of the batch behind it are there before the update."""
    stale = []
    for rounds in ("0", "4"):
        run_dir = run_often(work, f"rounds-{rounds}", ["--schedule-train-rounds", rounds], times=1)[0]
        stale.append(sum(row.get("rollout/weight_version/stale_share", 0) for row in numbers_that_repeat(run_dir).values()))
    assert stale[1] > stale[0]


def ascii_responses(run_dir):
    """By the sample's index."""
    return {sample["index"]: sample["response"] for _, sample in samples(run_dir) if sample["response"].isascii()}


def test_a_stop_string_across_two_rounds_is_seen(work):
    """In rounds of one token each. The strings are two characters, which are two tokens here."""
    still = ["--lr", "0"]
    plain = ascii_responses(run_often(work, "unstopped", still, times=1)[0])
    strings = sorted({text[:2] for text in plain.values() if len(text) > 2})[:12]
    assert strings
    stopped = ascii_responses(run_often(work, "stopped", [*still, "--schedule-round", "1", "--rollout-stop", *strings], times=1)[0])
    num_cut = 0
    for index, text in stopped.items():
        if index not in plain:
            continue
        ends = [plain[index].index(string) + 2 for string in strings if string in plain[index]]
        assert text == plain[index][: min(ends, default=None)]
        num_cut += bool(ends) and min(ends) < len(plain[index])
    assert num_cut > 0


@pytest.mark.parametrize(
    "extra",
    [
        ["--kv-on-update", "keep"],
        ["--pause-generation-mode", "in_place"],
        ["--colocate", "--schedule-train-rounds", "2"],
        ["--schedule-round", "0"],
    ],
)
def test_what_cannot_be_is_refused_by_name(work, extra):
    done = run_slime(async_command(work, work / "schedule-refused", extra=["--deterministic-schedule", *extra]))
    assert done.returncode == 2
    for flag in extra:
        if flag.startswith("--"):
            assert flag in done.stderr


def test_rounds_are_refused_without_the_schedule(work):
    done = run_slime(async_command(work, work / "schedule-refused", extra=["--schedule-round", "8"]))
    assert done.returncode == 2
    assert "--schedule-round" in done.stderr and "--deterministic-schedule" in done.stderr

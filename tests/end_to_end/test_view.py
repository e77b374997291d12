"""`slime train --view`: the page of a run that goes on, and a run that goes on without it."""

import json
import os
import re
import signal
import subprocess
import urllib.request

from conftest import train_command

INTERRUPTED = 130


def children_of(pid):
    """(pid, words) of the processes that `pid` started."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{entry}/cmdline") as file:
                words = file.read().split("\0")
        except OSError:
            continue  # it has ended
        if parent == pid:
            found.append((int(entry), words))
    return found


def line_with(process, text):
    for line in process.stdout:
        if text in line:
            return line
    raise AssertionError(f"the run ended before it said {text!r}")


def test_the_page_is_served_while_the_run_goes_on_and_its_end_is_a_line(work, tmp_path):
    command = train_command(work, tmp_path / "run", rollouts=100_000, extra=["--view"])
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        url = re.search(r"http://127\.0\.0\.1:\d+", line_with(run, "view: http"))[0]
        line_with(run, "step 1")  # its metrics are written
        with urllib.request.urlopen(f"{url}/api/runs", timeout=60) as reply:
            (listed,) = json.loads(reply.read())
        assert listed["id"] == "run" and listed["state"] == "running"
        with urllib.request.urlopen(f"{url}/api/metrics?run=run", timeout=60) as reply:
            assert json.loads(reply.read())["metrics"]["rollout/raw_reward"]["steps"][0] == 0
        (view,) = [pid for pid, words in children_of(run.pid) if words[1:2] == ["view"]]
        os.kill(view, signal.SIGKILL)
        assert "the run goes on" in line_with(run, "the page's process ended by signal 9")
        line_with(run, "step ")
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=120)
        assert run.returncode == INTERRUPTED
    finally:
        run.kill()
        run.wait()


def test_the_page_ends_with_the_run(work, tmp_path):
    command = train_command(work, tmp_path / "run", rollouts=100_000, extra=["--view"])
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        line_with(run, "view: http")
        (view,) = [pid for pid, words in children_of(run.pid) if words[1:2] == ["view"]]
        with open(f"/proc/{view}/stat") as file:
            nice = int(file.read().rsplit(")", 1)[1].split()[16])
        assert nice > 0  # it gives way to the run
        run.kill()
        run.wait()
        for _ in range(600):
            if not os.path.exists(f"/proc/{view}"):
                return
            signal.sigtimedwait([], 0.1)
        raise AssertionError("the page's process outlives the run")
    finally:
        run.kill()
        run.wait()

"""`slime sandbox`: by hand, for another process, and what is left when it is killed. The escapes: tests/sandbox."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from conftest import SLIME

CHECK = subprocess.run([SLIME, "sandbox", "--check"], capture_output=True, text=True, timeout=60)
needs_sandbox = pytest.mark.skipif(CHECK.returncode != 0, reason=CHECK.stderr.strip())


def sandbox(*arguments, text=""):
    return subprocess.run([SLIME, "sandbox", *arguments], input=text, capture_output=True, text=True, timeout=120)


@needs_sandbox
def test_a_program_by_hand(tmp_path):
    done = sandbox(text="print(6 * 7)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")
    file = tmp_path / "program.cpp"
    file.write_text('#include <iostream>\nint main() { int n; std::cin >> n; std::cout << n + 1; return 3; }')
    (tmp_path / "input").write_text("41")
    done = sandbox("--input", str(tmp_path / "input"), str(file))
    assert (done.returncode, done.stdout) == (3, "42"), done.stderr
    assert done.stderr == "slime sandbox: exit code 3\n"
    assert sandbox("--language", "sh", text="kill -9 $$").returncode == 128 + 9


@needs_sandbox
def test_it_is_the_same_with_and_without_the_small_program_beside_it(tmp_path):
    small = SLIME.with_name("slime-sandbox")
    assert small.exists()
    alone = tmp_path / "slime"
    os.link(SLIME, alone) if SLIME.stat().st_dev == tmp_path.stat().st_dev else shutil.copy(SLIME, alone)
    for command in ([small], [SLIME, "sandbox"], [alone, "sandbox"]):
        done = subprocess.run([*command, "--json"], input="import sys; sys.exit(9)", capture_output=True, text=True, timeout=60)
        line = json.loads(done.stdout)
        assert (line["ending"], line["code"], done.returncode) == ("exited", 9, 0), done.stderr
        refused = subprocess.run([*command, "--seconds", "x"], capture_output=True, text=True, timeout=60)
        assert refused.returncode == 2


@needs_sandbox
def test_a_limit_ends_with_124_and_says_which():
    done = sandbox("--seconds", "0.5", text="while True: pass")
    assert done.returncode == 124
    assert done.stderr == "slime sandbox: was ended after 0.5 s\n"
    line = json.loads(sandbox("--json", "--output-kb", "1", text="print('x' * 5000)").stdout)
    assert line["ending"] == "output" and line["output"] == "x" * 1024


def test_what_cannot_be_run_ends_with_2(tmp_path):
    assert "--language cobol: should be python, shell or c++" in sandbox("--language", "cobol").stderr
    assert sandbox(str(tmp_path / "missing.py")).returncode == 2
    assert sandbox("--memory-mb", "1", text="").returncode == 2


@needs_sandbox
@pytest.mark.parametrize(
    "hindrance, says",
    [
        (["--ro-bind", "/dev/null", "/usr/bin/bwrap"], "install Debian's package bubblewrap"),
        (["--unshare-user", "--disable-userns"], "It needs user name spaces"),
    ],
)
def test_without_bubblewrap_or_name_spaces_it_refuses(tmp_path, hindrance, says):
    mark = tmp_path / "ran"
    command = ["bwrap", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *hindrance, "--", str(SLIME), "sandbox"]
    for arguments, text in ((["--check"], ""), ([], f"open({str(mark)!r}, 'w')"), (["--serve"], '{"do": "open"}\n')):
        done = subprocess.run([*command, *arguments], input=text, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and says in done.stderr, done
        assert "bubblewrap only" in done.stderr
    assert not mark.exists()


@needs_sandbox
def test_what_is_no_request_ends_the_service_with_its_line():
    done = sandbox("--serve", text='{"do": "open"}\n{"do": \n')
    assert done.returncode == 2
    assert "standard input, line 2" in done.stderr


def is_slime_or_bwrap(process):
    try:
        return Path(f"/proc/{process}/comm").read_text().startswith(("slime", "bwrap"))
    except OSError:
        return False


def left_of(session, mark):
    """Processes of a session, or with the mark among their variables; and bubblewraps whose slime is gone."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat, variables = (folder / "stat").read_text(), (folder / "environ").read_bytes()
        except OSError:
            continue
        state, parent, _, its_session = stat[stat.rindex(")") + 2 :].split()[:4]
        is_orphan = "(bwrap)" in stat and not is_slime_or_bwrap(parent)
        if state != "Z" and (int(its_session) == session or mark.encode() in variables or is_orphan):
            found.append(f"{folder.name} {stat[:60]}")
    return found


DAEMON = """
import os, signal, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: time.sleep(1)
while True: time.sleep(1)
"""


@needs_sandbox
def test_killed_by_sigkill_at_any_moment_it_leaves_nothing():
    chance = random.Random(7)
    seen = 0
    for moment in range(20):
        mark = f"mark-{uuid.uuid4().hex}"
        service = subprocess.Popen(
            [SLIME, "sandbox", "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "SLIME_TEST_MARK": mark},
        )
        service.stdin.write(b'{"do": "open"}\n')
        service.stdin.flush()
        number = json.loads(service.stdout.readline())["sandbox"]
        request = {"do": "exec", "sandbox": number, "words": ["python3", "-c", DAEMON], "environment": {"MARK": mark}}
        for line in (request, {"do": "open"}, {"do": "run", "code": DAEMON}):
            service.stdin.write(json.dumps(line).encode() + b"\n")
        service.stdin.flush()
        time.sleep(chance.uniform(0, 0.2))
        seen = max(seen, len(left_of(service.pid, mark)))
        service.send_signal(signal.SIGKILL)
        service.wait()
        end = time.monotonic() + 20
        while left := left_of(service.pid, mark):
            assert time.monotonic() < end, (moment, left)
            time.sleep(0.01)
    assert seen >= 5, "there was something to be left"


@needs_sandbox
def test_the_end_of_its_input_ends_everything():
    mark = f"mark-{uuid.uuid4().hex}"
    service = subprocess.Popen(
        [SLIME, "sandbox", "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    service.stdin.write(b'{"do": "open"}\n')
    service.stdin.flush()
    request = {"do": "exec", "sandbox": json.loads(service.stdout.readline())["sandbox"], "words": ["python3", "-c", DAEMON]}
    request |= {"environment": {"MARK": mark}, "limits": {"seconds": 600}}
    service.stdin.write(json.dumps(request).encode() + b"\n")
    service.stdin.flush()
    end = time.monotonic() + 60
    while len(left_of(service.pid, mark)) < 5:  # the service, a doorkeeper, three of the program
        assert time.monotonic() < end
        time.sleep(0.01)
    service.stdin.close()
    assert service.wait(timeout=20) == 0
    end = time.monotonic() + 20
    while left := left_of(service.pid, mark):
        assert time.monotonic() < end, left
        time.sleep(0.01)

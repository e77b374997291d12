"""Commands in a sandbox that are forks of a warm process (docs/decisions/0156-warm-processes.md): what a process of its own may not, they
may not, and nothing of one reaches the next."""

import asyncio
import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from conftest import SLIME
from slime.agent import local_sandbox
from slime.agent.local_sandbox import LocalSandbox, SandboxError, WarmProcess

CHECK = subprocess.run([SLIME, "sandbox", "--check"], capture_output=True, text=True, timeout=60)
pytestmark = [
    pytest.mark.skipif(CHECK.returncode != 0, reason=CHECK.stderr.strip()),
    pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="no /usr/bin/python3"),
]

# What a command can find out about itself. Its number, times and the addresses of its memory differ from run to run.
PROBE = r'''
import gc, json, os, re, resource, signal, socket, sys, time
kept = []

def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()

def about():
    status = dict(line.split(":", 1) for line in read("/proc/self/status").splitlines())
    names = "Uid Gid Groups NoNewPrivs Seccomp CapInh CapPrm CapEff CapBnd CapAmb SigBlk SigIgn Threads TracerPid Umask NSpid".split()
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    refused = {}
    for name, act in {"chroot": lambda: os.chroot("/"), "setuid": lambda: os.setuid(0), "root": lambda: open("/x", "w"),
                      "packet": lambda: socket.socket(socket.AF_PACKET), "first": lambda: os.kill(1, signal.SIGKILL),
                      "memory of the first": lambda: open("/proc/1/mem", "rb+")}.items():
        try:
            act()
            refused[name] = None
        except OSError as error:
            refused[name] = error.errno
    return {
        "status": {name: status[name].split() for name in names},
        "limits": limits,
        "namespaces": sorted(os.listdir("/proc/self/ns")),
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "mounts": sorted(line.split()[4] + " " + line.split()[5] for line in read("/proc/self/mountinfo").splitlines()),
        "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
        "environment": dict(os.environ),
        "cwd": os.getcwd(),
        "root": sorted(os.listdir("/")),
        "work": sorted(os.listdir("/work")),
        "hostname": socket.gethostname(),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "session": os.getsid(0) == os.getpid() == os.getpgrp(),
        "refused": refused,
    }

def main(what, value=""):
    if what == "about":
        print(json.dumps(about(), sort_keys=True))
    elif what == "exit":
        sys.exit(int(value))
    elif what == "raise":
        raise ValueError("no good")
    elif what == "loop":
        while True:
            pass
    elif what == "hoard":
        held = []
        while True:
            held.append(bytes(1 << 20) + os.urandom(8))
    elif what == "leave":
        kept.append(value)
        sys.modules["json"].dumps = lambda *_, **__: value
        os.environ["LEFT"] = value
        open("/work/left", "w").write(value)
        print(kept)
    elif what == "look":
        print(kept, os.environ.get("LEFT"), os.path.exists("/work/left"), json.dumps(1), os.path.exists("/proc/self/fd/3"))
    elif what == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)

if __name__ == "__main__":
    main(*sys.argv[1:])
'''


@pytest.fixture(autouse=True)
def _program(monkeypatch):
    monkeypatch.setenv("SLIME_BINARY", str(SLIME))


PYTHON = "/usr/bin/python3"  # it is in every sandbox, and no command could change it


@pytest.fixture
def probe():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # a sandbox is another user's where this one is root
        path = Path(folder) / "probe.py"
        path.write_text(PROBE)
        yield path


async def in_sandbox(probe, warm, *words, limits=None, **more):
    async with LocalSandbox(limits={"seconds": 30, **(limits or {})}, readable=[probe]) as sandbox:
        return await sandbox.run([PYTHON, probe, *words], warm=warm, **more)


def with_warm(probe, act):
    async def go():
        warm = await WarmProcess(PYTHON, probe).start()
        try:
            return await act(warm)
        finally:
            await warm.close()

    return asyncio.run(go())


def test_a_fork_has_what_a_process_of_its_own_has_and_no_more(probe):
    async def act(warm):
        return [await in_sandbox(probe, each, "about", environment={"A": "b"}) for each in (None, warm)]

    fresh, forked = with_warm(probe, act)
    assert (forked["ending"], forked["error"]) == ("exited", ""), forked
    fresh, forked = json.loads(fresh["output"]), json.loads(forked["output"])
    assert forked["status"]["CapEff"] == ["0" * 16] and forked["status"]["Seccomp"] == ["2"]
    assert forked["status"]["NoNewPrivs"] == ["1"] and forked["environment"]["A"] == "b"
    assert forked["status"] == fresh["status"]
    assert forked == fresh


def test_nothing_of_one_fork_reaches_the_next(probe):
    async def act(warm):
        left = await in_sandbox(probe, warm, "leave", "mark")
        return left, await in_sandbox(probe, warm, "look")

    left, looked = with_warm(probe, act)
    assert left["output"] == "['mark']\n", left
    assert looked["output"] == "[] None False 1 False\n", looked


def test_limits_and_endings_are_those_of_a_process_of_its_own(probe):
    async def act(warm):
        return {
            "exit": await in_sandbox(probe, warm, "exit", "7"),
            "raise": await in_sandbox(probe, warm, "raise"),
            "signal": await in_sandbox(probe, warm, "signal"),
            "loop": await in_sandbox(probe, warm, "loop", limits={"seconds": 1}),
            "hoard": await in_sandbox(probe, warm, "hoard", limits={"memory_mb": 64}),
            "again": await in_sandbox(probe, warm, "look"),
        }

    found = with_warm(probe, act)
    assert (found["exit"]["ending"], found["exit"]["code"]) == ("exited", 7)
    assert found["raise"]["code"] == 1 and found["raise"]["error"].endswith("ValueError: no good\n")
    assert (found["signal"]["ending"], found["signal"]["code"]) == ("signal", 11)
    assert found["loop"]["ending"] == "time" and found["loop"]["cpu_seconds"] > 0
    assert found["hoard"]["ending"] == "memory" or "MemoryError" in found["hoard"]["error"], found["hoard"]
    assert found["again"]["output"] == "[] None False 1 False\n"


def test_a_limit_that_cannot_be_set_keeps_the_command_from_starting(probe):
    narrow = probe.with_name("python")
    narrow.write_text(f'#!/bin/sh\nexec prlimit --nofile=100:100 {PYTHON} "$@"\n')
    narrow.chmod(0o755)

    async def act():
        warm = await WarmProcess(narrow, probe).start()
        try:
            return await in_sandbox(probe, warm, "exit", "0", limits={"open_files": 200})
        finally:
            await warm.close()

    done = asyncio.run(act())
    assert done["ending"] == "not started" and "could not put a fork of the warm process into the sandbox" in done["reason"], done


def test_side_by_side(probe):
    async def act(warm):
        return await asyncio.gather(*(in_sandbox(probe, warm, "exit", str(code)) for code in range(1, 9)))

    assert [done["code"] for done in with_warm(probe, act)] == list(range(1, 9))


@pytest.mark.parametrize(
    "code, says",
    [
        ("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()", "it has threads"),
        ("import mmap; shared = mmap.mmap(-1, 4096)", "its forks would share memory"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_module_whose_forks_would_not_be_alone_is_refused(tmp_path, code, says):
    module = tmp_path / "module.py"
    module.write_text(f"{code}\ndef main():\n    pass\n")
    with pytest.raises(SandboxError, match=says):
        asyncio.run(WarmProcess(PYTHON, module).start())


def test_a_warm_process_that_has_ended_is_said(probe):
    async def act(warm):
        await warm.close()
        with pytest.raises(SandboxError, match="warm process .*: does not answer"):
            await in_sandbox(probe, warm, "look")

    with_warm(probe, act)


def test_when_the_service_is_killed_forks_end_and_the_warm_process_stays(probe):
    def forks_of(process):
        return Path(f"/proc/{process}/task/{process}/children").read_text().split()

    async def until(holds):
        for _ in range(6000):
            if holds():
                return True
            await asyncio.sleep(0.01)
        return False

    async def act(warm):
        running = asyncio.create_task(in_sandbox(probe, warm, "loop"))
        number = warm._process.pid
        assert await until(lambda: forks_of(number))
        local_sandbox._service._process.kill()
        with pytest.raises(SandboxError):
            await running
        assert await until(lambda: not forks_of(number))
        return await in_sandbox(probe, warm, "exit", "5")

    assert with_warm(probe, act)["code"] == 5

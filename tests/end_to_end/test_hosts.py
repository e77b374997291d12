"""A run over several hosts: each "host" is a process of its own here, as a launcher would start it on each."""

import json
import os
import signal
import socket
import subprocess
import time

import pytest
from conftest import SLIME, numbers_that_repeat, run_slime, train_command, weights
from strangers import Strangers

TOKEN = "0123456789abcdef" * 4


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(rank, port, *, nodes=2, token=TOKEN):
    place = {"SLIME_NODE_RANK": str(rank), "SLIME_NUM_NODES": str(nodes), "SLIME_MASTER_ADDR": "127.0.0.1", "SLIME_MASTER_PORT": str(port)}
    return {**os.environ, **place, "SLIME_RUN_TOKEN": token}


def begin(command, settings):
    return subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def begin_all(command, *, nodes=2):
    port = free_port()
    return [begin(command, environment(rank, port, nodes=nodes)) for rank in range(nodes)]


def finish(processes, timeout=120):
    """(exit code, output) of each."""
    return [(process.communicate(timeout=timeout)[0], process.returncode)[::-1] for process in processes]


def audit(run_dir):
    done = run_slime([str(SLIME), "ledger", str(run_dir), "--json"])
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def processes():
    """(process, command line, environment) of all of this machine."""
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            line, settings = (open(f"/proc/{entry.name}/{name}", "rb").read().decode(errors="replace") for name in ("cmdline", "environ"))
        except OSError:
            continue  # it has ended
        yield int(entry.name), line.replace("\0", " "), settings.split("\0")


def processes_of(word):
    """Command lines of this machine that have it."""
    return [line for process, line, _ in processes() if word in line and process != os.getpid()]


def test_flags_of_several_hosts_say_that_there_is_one(work):
    flags = ["--num-gpus-per-node", "4", "--nodes-timeout-seconds", "7"]
    done = run_slime(train_command(work, work / "one-host", rollouts=1, extra=flags))
    assert done.returncode == 0, done.stdout + done.stderr
    for flag in flags[::2]:
        assert f"{flag} has no effect" in done.stdout + done.stderr
    assert "it counts with several hosts" in done.stdout + done.stderr


RANKS = ["--actor-num-nodes", "2", "--actor-num-gpus-per-node", "1"]
LAYOUTS = {
    "dp": [],
    "pp": ["--pipeline-model-parallel-size", "2"],
    "engine-on-the-second": None,  # in the place of RANKS
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_hosts_train_as_one(work, layout):
    extra = LAYOUTS[layout]
    flags = ["--rollout-num-gpus", "1", "--num-gpus-per-node", "1"] if extra is None else [*RANKS, *extra]
    one = ["--rollout-num-gpus", "1"] if extra is None else ["--actor-num-gpus-per-node", "2", *extra]
    alone, apart = work / f"one-host-{layout}", work / f"two-hosts-{layout}"
    done = run_slime(train_command(work, alone, rollouts=3, extra=one))
    assert done.returncode == 0, done.stdout + done.stderr
    results = finish(begin_all(train_command(work, apart, rollouts=3, extra=flags)))
    assert [code for code, _ in results] == [0, 0], results
    assert " is process " in results[1][1], "the second host has started workers"
    assert weights(apart) == weights(alone)
    assert numbers_that_repeat(apart) == numbers_that_repeat(alone)
    audit(apart)


def test_a_host_without_the_token_is_refused_and_the_run_goes_on(work):
    command = train_command(work, work / "hosts-token", rollouts=2, extra=RANKS)
    port = free_port()
    controller = begin(command, environment(0, port))
    stranger = begin(command, environment(1, port, token="f" * 64))
    assert finish([stranger])[0][0] != 0
    second = begin(command, environment(1, port))
    results = finish([controller, second])
    assert [code for code, _ in results] == [0, 0], results


def test_strangers_at_every_port_learn_and_change_nothing(work):
    alone, apart = work / "no-strangers", work / "strangers"
    done = run_slime(train_command(work, alone, rollouts=60, extra=["--actor-num-gpus-per-node", "2"]))
    assert done.returncode == 0, done.stdout + done.stderr
    hosts = begin_all(train_command(work, apart, rollouts=60, extra=RANKS))
    with Strangers(hosts, TOKEN) as strangers:
        results = finish(hosts)
    assert [code for code, _ in results] == [0, 0], results
    assert len(strangers.ports) >= 2 and len(strangers.answers) >= 10, "they were really there"
    strangers.check()
    assert not any(strangers.settings.values()), "once a process has read the token its environment does not show it"
    assert weights(apart) == weights(alone)
    assert numbers_that_repeat(apart) == numbers_that_repeat(alone)
    audit(apart)


def test_hosts_need_a_shared_token_and_one_host_alone_is_told_how(work):
    command = train_command(work, work / "hosts-none", rollouts=2, extra=RANKS)
    settings = environment(0, free_port())
    del settings["SLIME_RUN_TOKEN"]
    done = run_slime(command, env=settings)
    assert done.returncode != 0 and "export SLIME_RUN_TOKEN=$(openssl rand -hex 32)" in done.stderr
    done = run_slime(command)
    assert done.returncode != 0 and "--actor-num-nodes 2: this command was started on one host" in done.stderr


def test_hosts_that_do_not_come_end_the_run_in_time(work):
    command = train_command(work, work / "hosts-late", rollouts=2, extra=[*RANKS, "--nodes-timeout-seconds", "1"])
    done = run_slime(command, env=environment(0, free_port()))
    assert done.returncode != 0 and "1 of 2 hosts are there after 1 s (--nodes-timeout-seconds)" in done.stderr
    done = run_slime(command, env=environment(1, free_port()))
    assert done.returncode != 0 and "no controller at 127.0.0.1" in done.stderr


def wait_for_step(run_dir, step, timeout=60):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        latest = run_dir / "latest"
        if latest.is_symlink() and int(latest.readlink().name.split("_")[1]) >= step:
            return
        time.sleep(0.01)
    raise AssertionError(f"step {step} was not saved within {timeout} s")


def test_a_host_that_is_killed_is_replaced_and_no_prompt_is_lost(work):
    """The engine and a rank of the second host go with it; the host that comes in its place gets new ones."""
    run_dir = work / "hosts-killed"
    flags = ["--actor-num-nodes", "2", "--actor-num-gpus-per-node", "1", "--num-gpus-per-node", "1", "--rollout-num-gpus", "1"]
    flags += ["--use-fault-tolerance", "--worker-timeout-seconds", "5"]
    command = train_command(work, run_dir, rollouts=60, extra=flags)
    port = free_port()
    hosts = [begin(command, environment(rank, port, nodes=3)) for rank in range(3)]
    wait_for_step(run_dir, 2)
    hosts[1].send_signal(signal.SIGKILL)
    hosts[1].communicate()
    again = begin(command, environment(1, port, nodes=3))
    results = finish([hosts[0], hosts[2], again], timeout=240)
    assert [code for code, _ in results] == [0, 0, 0], results
    assert "trainer ranks start again" in results[0][1]
    found = audit(run_dir)
    assert found["checkpoint"]["step"] == 59 and found["checkpoint"]["prompts"]["trained"] == 240


def test_nothing_is_left_when_the_controller_is_killed(work):
    run_dir = work / "hosts-no-controller"
    hosts = begin_all(train_command(work, run_dir, rollouts=2000, extra=RANKS))
    wait_for_step(run_dir, 1)
    hosts[0].send_signal(signal.SIGKILL)
    hosts[0].communicate()
    code, output = finish([hosts[1]])[0]
    assert code != 0 and "the controller is gone" in output
    deadline = time.monotonic() + 10
    while processes_of(str(run_dir)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not processes_of(str(run_dir))


def test_processes_that_do_not_lead_their_host_have_nothing_to_do(work):
    command = train_command(work, work / "hosts-spare", rollouts=1, extra=RANKS)
    place = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    done = run_slime(command, env={**os.environ, **place})
    assert done.returncode == 0 and "process 3 of torchrun has nothing to do" in done.stderr


"""Hosts with addresses of their own: network namespaces on one bridge, where a cable can be cut and nothing says so."""

import os
import shutil
import signal
import subprocess
import time

import pytest
from conftest import run_slime, train_command, weights
from test_hosts import TOKEN, audit, wait_for_step

NAME = f"slime{os.getpid()}"
SWITCH = f"{NAME}s"
STEPS = 30


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


class Host:
    """A namespace on the bridge, and what runs in it."""

    def __init__(self, number):
        self.name, self.port, self.address = f"{NAME}n{number}", f"p{number}", f"10.78.0.{number}"
        ip("netns", "add", self.name)
        ip("link", "add", self.port, "netns", SWITCH, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("-n", SWITCH, "link", "set", self.port, "master", "br0", "up")
        ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            ip("-n", self.name, "link", "set", device, "up")

    def begin(self, command, rank, controller, nodes):
        settings = {"SLIME_NODE_RANK": rank, "SLIME_NUM_NODES": nodes, "SLIME_MASTER_ADDR": controller.address, "SLIME_MASTER_PORT": 29500}
        settings = {**os.environ, **{name: str(value) for name, value in settings.items()}, "SLIME_RUN_TOKEN": TOKEN}
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, *command], env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def processes(self):
        return [int(word) for word in ip("netns", "pids", self.name).stdout.split()]

    def kill(self):
        for process in self.processes():
            os.kill(process, signal.SIGKILL)

    def cut(self):
        """Packets vanish in the switch: no end sees an end."""
        ip("-n", SWITCH, "link", "set", self.port, "nomaster")


@pytest.fixture
def hosts():
    if shutil.which("ip") is None or ip("netns", "add", SWITCH, check=False).returncode != 0:
        pytest.skip("no network namespaces on this machine (root and iproute2)")
    made = []
    try:
        ip("-n", SWITCH, "link", "add", "br0", "type", "bridge")
        for device in ("br0", "lo"):
            ip("-n", SWITCH, "link", "set", device, "up")
        made += [Host(number) for number in (1, 2, 3, 4)]
        yield made
    finally:
        for host in made:
            host.kill()
        for name in (*(host.name for host in made), SWITCH):
            ip("netns", "del", name, check=False)


def command_for(work, run_dir, rollouts=STEPS):
    """Rank 0 with the controller, rank 1 on the second host, an engine on the third."""
    flags = ["--actor-num-nodes", "2", "--actor-num-gpus-per-node", "1", "--num-gpus-per-node", "1", "--rollout-num-gpus", "1"]
    flags += ["--use-fault-tolerance", "--worker-timeout-seconds", "3"]
    return train_command(work, run_dir, rollouts=rollouts, extra=flags)


@pytest.fixture(scope="module")
def undisturbed(work):
    run_dir = work / "network-none"
    done = run_slime(train_command(work, run_dir, rollouts=STEPS, extra=["--actor-num-gpus-per-node", "2", "--rollout-num-gpus", "1"]))
    assert done.returncode == 0, done.stdout + done.stderr
    return run_dir


def gone_within(host, seconds):
    deadline = time.monotonic() + seconds
    while host.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not host.processes()


@pytest.mark.parametrize("victim", [1, 2], ids=["rank", "engine"])
@pytest.mark.parametrize("fault", ["kill", "cut"])
def test_a_lost_host_is_replaced_and_the_weights_are_those_of_the_undisturbed_run(work, hosts, undisturbed, victim, fault):
    run_dir = work / f"network-{victim}-{fault}"
    command = command_for(work, run_dir)
    running = {rank: hosts[rank].begin(command, rank, hosts[0], 3) for rank in range(3)}
    wait_for_step(run_dir, 2)
    getattr(hosts[victim], fault)()
    lost = running.pop(victim)
    # It comes before the controller has noticed, and goes on asking until its place is free.
    running["again"] = hosts[3].begin(command, victim, hosts[0], 3)
    outputs = {name: process.communicate(timeout=120)[0] for name, process in running.items()}
    assert all(process.returncode == 0 for process in running.values()), outputs
    assert gone_within(hosts[victim], 15), "the host that was cut off has ended its workers by itself"
    lost.communicate(timeout=10)
    assert weights(run_dir) == weights(undisturbed)
    assert audit(run_dir)["checkpoint"]["prompts"]["trained"] == STEPS * 4


def test_a_rank_is_cut_off_from_the_one_with_the_engine(work, hosts):
    """Rank 0 waits for the other one in the middle of a sum, or draws alone."""
    run_dir = work / "network-one-engine"
    flags = ["--actor-num-nodes", "2", "--actor-num-gpus-per-node", "1", "--use-fault-tolerance", "--worker-timeout-seconds", "3"]
    command = train_command(work, run_dir, rollouts=STEPS, extra=flags)
    running = [hosts[rank].begin(command, rank, hosts[0], 2) for rank in range(2)]
    wait_for_step(run_dir, 2)
    hosts[1].cut()
    running.append(hosts[3].begin(command, 1, hosts[0], 2))
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0, 1, 0], outputs
    assert audit(run_dir)["checkpoint"]["prompts"]["trained"] == STEPS * 4


def test_the_controllers_host_is_lost_and_the_command_given_again_goes_on(work, hosts, undisturbed):
    run_dir = work / "network-controller"
    command = command_for(work, run_dir)
    running = [hosts[rank].begin(command, rank, hosts[0], 3) for rank in range(3)]
    wait_for_step(run_dir, 2)
    hosts[0].cut()
    for host in hosts[1:3]:
        assert gone_within(host, 15), "nobody works for a controller that is not heard"
    hosts[0].kill()
    for process in running:
        process.communicate(timeout=10)
    running = [hosts[place].begin(command, rank, hosts[3], 3) for rank, place in enumerate((3, 1, 2))]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert all(process.returncode == 0 for process in running), outputs
    assert weights(run_dir) == weights(undisturbed)
    audit(run_dir)

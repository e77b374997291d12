"""`ray job submit ... -- python3 train.py FLAGS`, as users type it, on a cluster of this host."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from conftest import ROOT, run_slime, train_command, weights
from test_hosts import audit, free_port, processes, processes_of, wait_for_step

pytest.importorskip("ray")
RAY = Path(sys.executable).parent / "ray"
ENVIRONMENT = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PATH": f"{RAY.parent}:{os.environ['PATH']}"}
HOSTS = ["--actor-num-nodes", "2", "--actor-num-gpus-per-node", "1", "--use-fault-tolerance"]


class Address(str):
    """Where jobs are submitted; `gcs`: where drivers connect."""


@pytest.fixture(scope="module")
def cluster():
    """Where jobs are submitted. Its own ports, so that a cluster of the user's is left alone."""
    folder = tempfile.mkdtemp(prefix="ray")  # short: sockets lie in it
    dashboard, port = free_port(), free_port()
    start = [RAY, "start", "--head", "--block", "--num-cpus=4", "--num-gpus=0", f"--port={port}", f"--ray-client-server-port={free_port()}"]
    start += [f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={free_port()}", f"--temp-dir={folder}"]
    start += ["--object-store-memory=100000000", "--disable-usage-stats", "--node-ip-address=127.0.0.1"]
    head = subprocess.Popen(list(map(str, start)), env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    address = Address(f"http://127.0.0.1:{dashboard}")
    address.gcs = f"127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while subprocess.run([RAY, "job", "list", f"--address={address}"], env=ENVIRONMENT, capture_output=True).returncode != 0:
            assert head.poll() is None and time.monotonic() < deadline, "the cluster does not come up"
            time.sleep(0.2)
        yield address
    finally:
        head.send_signal(signal.SIGTERM)
        try:
            head.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(head.pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def submit(cluster, work, run_dir, *, rollouts, extra=(), name=None):
    command = [str(RAY), "job", "submit", f"--address={cluster}", *(["--submission-id", name] if name else []), "--"]
    command += ["python3", str(ROOT / "train.py"), *train_command(work, run_dir, rollouts=rollouts, extra=extra)[2:]]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def parent_of(process):
    return int(re.search(r"^PPid:\s+(\d+)", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)[1])


def process_of_host(run_dir, rank):
    """The `slime train` that Ray's supervisor started for a host of this run."""
    for process, line, settings in processes():
        if str(run_dir) in line and "slime.ray_cluster" not in line and f"SLIME_NODE_RANK={rank}" in settings:
            return process
    raise AssertionError(f"host {rank} has no process")


def launcher_of(run_dir):
    for process, line, _ in processes():
        if " slime.ray_cluster " in line and str(run_dir) in line:
            return process
    raise AssertionError("no launcher")


def test_a_job_trains_shows_its_log_and_ends_with_its_exit_code(cluster, work):
    run_dir, alone = work / "ray-job", work / "ray-alone"
    done = run_slime(train_command(work, alone, rollouts=3, extra=["--actor-num-gpus-per-node", "2"]))
    assert done.returncode == 0, done.stdout + done.stderr
    job = submit(cluster, work, run_dir, rollouts=3, extra=HOSTS)
    output = job.communicate(timeout=120)[0]
    assert job.returncode == 0, output
    assert "step 3/3" in output and "(host 1) slime node: rank 1 is process" in output
    assert weights(run_dir) == weights(alone)
    job = submit(cluster, work, work / "ray-wrong", rollouts=3, extra=["--hf-checkpoint", "/nowhere"])
    output = job.communicate(timeout=120)[0]
    assert job.returncode != 0 and "/nowhere" in output


def test_what_ray_has_no_room_for_or_python_no_package_is_told(cluster, work):
    extra = ["--actor-num-nodes", "8", "--nodes-timeout-seconds", "2"]
    done = run_slime(train_command(work, work / "ray-big", rollouts=3, extra=extra), env={**ENVIRONMENT, "RAY_ADDRESS": cluster.gcs})
    assert done.returncode != 0 and "the cluster has 4, of which 4 are free" in done.stderr, done.stderr
    done = run_slime(train_command(work, work / "ray-none", rollouts=3, extra=["--launcher", "ray", "--plugin-python", "/usr/bin/python3"]))
    assert done.returncode != 0 and "has no package ray; --plugin-python names the Python that has it" in done.stderr


@pytest.mark.nightly
def test_a_job_that_is_stopped_leaves_no_process(cluster, work):
    run_dir = work / "ray-stopped"
    job = submit(cluster, work, run_dir, rollouts=100000, extra=HOSTS, name="stopped")
    wait_for_step(run_dir, 1, timeout=120)
    stopped = subprocess.run([RAY, "job", "stop", "stopped", f"--address={cluster}"], env=ENVIRONMENT, capture_output=True, text=True)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    job.communicate(timeout=60)
    deadline = time.monotonic() + 15
    while processes_of(str(run_dir)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not processes_of(str(run_dir))
    audit(run_dir)


def test_workers_hosts_and_supervisors_that_die_come_back(cluster, work):
    run_dir = work / "ray-deaths"
    job = submit(cluster, work, run_dir, rollouts=80, extra=[*HOSTS, "--rollout-num-gpus", "1", "--num-gpus-per-node", "1"])
    wait_for_step(run_dir, 1, timeout=120)
    killed = []
    for who in ("worker", "host", "supervisor"):
        host = process_of_host(run_dir, 1)
        if who == "worker":
            victim = next(int(child) for child in Path(f"/proc/{host}/task/{host}/children").read_text().split())
        else:
            victim = host if who == "host" else parent_of(host)
        at = int((run_dir / "latest").readlink().name.split("_")[1])
        os.kill(victim, signal.SIGKILL)
        killed.append(who)
        wait_for_step(run_dir, at + 3, timeout=60)
    output = job.communicate(timeout=240)[0]
    assert job.returncode == 0, output
    assert output.count("trainer ranks start again") == len(killed), output
    found = audit(run_dir)
    assert found["checkpoint"]["prompts"]["trained"] == 80 * 4


@pytest.mark.nightly
def test_a_job_dies_with_its_controller_and_goes_on_when_it_is_submitted_again(cluster, work):
    run_dir = work / "ray-controller"
    for victim in ("controller", "launcher"):
        job = submit(cluster, work, run_dir, rollouts=100000, extra=HOSTS)
        before = int((run_dir / "latest").readlink().name.split("_")[1]) if (run_dir / "latest").exists() else -1
        wait_for_step(run_dir, before + 2, timeout=120)
        controller = process_of_host(run_dir, 0)
        os.kill(controller if victim == "controller" else launcher_of(run_dir), signal.SIGKILL)
        output = job.communicate(timeout=60)[0]
        assert job.returncode != 0, output
        deadline = time.monotonic() + 15
        while processes_of(str(run_dir)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not processes_of(str(run_dir)), victim
    audit(run_dir)

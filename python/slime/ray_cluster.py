"""A run of `slime train` on a Ray cluster.

    python3 -m slime.ray_cluster --places 8 --places 8 --resource GPU --timeout 1800 -- slime train FLAGS

`slime train` becomes this by itself where RAY_ADDRESS is set, as in `ray job submit -- python3 train.py FLAGS`.
It asks for a placement group with a bundle for each host, puts a supervising actor on each, and lets it start the
command there, with a place in its environment as any other launcher gives (SLIME_NODE_RANK; docs/cluster.md). The first
one is the run's controller; its output and its exit code are this program's. A host that is lost, or whose process ends,
is started again where Ray finds room, and comes back to the controller; without the controller the run ends.
"""

import argparse
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time

# Ray kills supervisors whose job has ended. Where it does not notice, and this program says nothing for so long, they end
# what they started: a driver that was stopped for a while, or a network that was away, costs no run.
LEASE_SECONDS = 600
LEASE_GRACE_SECONDS = 60  # for what is to be saved
POLL_SECONDS = 0.2
PENDING_SECONDS = 30  # between two lines about what is waited for
KILL_SECONDS = 2  # `ray job stop` gives three
MOST_LOG_BYTES = 1 << 20  # of one answer
PR_SET_PDEATHSIG = 1
TERMINATED = 128 + signal.SIGTERM  # exit code


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Supervisor:
    """Starts one command on its host, and keeps what it prints until it is asked. An actor."""

    def __init__(self):
        self.process = self.reader = None
        self.log = bytearray()
        self.lock = threading.Condition()
        self.heard = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def place(self):
        """This host's address, and a port that nobody listens on."""
        import ray

        address = ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((address, 0))
            return address, probe.getsockname()[1]

    def start(self, command, settings, folder):
        import ray

        environment = {**os.environ, **settings}
        if "OMP_NUM_THREADS" not in settings:
            environment.pop("OMP_NUM_THREADS", None)  # Ray's, of the actor's one core
        devices = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        if devices:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, devices))
        self.process = subprocess.Popen(  # on the main thread: with it the process would die
            command, env=environment, cwd=folder if os.path.isdir(folder) else None, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=die_with_parent, start_new_session=True,
        )  # fmt: skip
        try:
            os.setpriority(os.PRIO_PROCESS, self.process.pid, 0)  # Ray's actors have 15
        except OSError:
            pass  # it needs a right that few containers give
        self.reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self.reader.start()
        return self.process.pid

    def poll(self):
        """What it has printed since, and its exit code; None: it runs."""
        self.heard = time.monotonic()
        has_said_all = self.reader is not None and not self.reader.is_alive()  # first: what it reads later is not taken here
        with self.lock:
            text, self.log = bytes(self.log[:MOST_LOG_BYTES]), self.log[MOST_LOG_BYTES:]
            self.lock.notify_all()
            is_empty = not self.log
        return text, self.process.poll() if has_said_all and is_empty else None

    def signal(self, number):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def _read(self, process):
        while chunk := process.stdout.read1(1 << 16):
            with self.lock:
                self.lock.wait_for(lambda: len(self.log) < 8 * MOST_LOG_BYTES)  # who prints more waits
                self.log += chunk
        process.wait()

    def _watch(self):
        while time.monotonic() - self.heard < LEASE_SECONDS:
            time.sleep(1)
        self.signal(signal.SIGTERM)
        end = time.monotonic() + LEASE_GRACE_SECONDS
        while self.process and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.2)
        self.signal(signal.SIGKILL)
        os._exit(1)


class Host:
    """A bundle of the group, the supervisor on it, and what that one is asked."""

    def __init__(self, cluster, index):
        self.cluster, self.index, self.partial = cluster, index, b""
        self.actor = self.answer = None
        self.not_before = 0.0

    def place(self):
        self.actor = self.cluster.supervisor_on(self.index)
        return self.actor.place.remote()

    def start(self, settings):
        self.actor.start.remote(self.cluster.command, settings, os.getcwd())
        self.answer = None

    def poll(self):
        """(text, exit code), or None: no answer yet. Raises ray's error when the supervisor is lost."""
        import ray

        if self.answer is None:
            self.answer = self.actor.poll.remote()
        ready, _ = ray.wait([self.answer], timeout=0)
        if not ready:
            return None
        answer, self.answer = self.answer, None
        return ray.get(answer)

    def show(self, text):
        """Whole lines; those of other hosts begin with which."""
        lines = (self.partial + text).split(b"\n")
        self.partial = lines.pop()
        mark = b"" if self.index == 0 else b"(host %d) " % self.index
        sys.stdout.buffer.write(b"".join(mark + line + b"\n" for line in lines))
        sys.stdout.buffer.flush()


class Cluster:
    def __init__(self, options):
        import ray

        self.ray, self.command = ray, options.command
        self.bundles = [{options.resource: places} | ({"CPU": 1} if options.resource == "GPU" else {}) for places in options.places]
        self.resource, self.deadline = options.resource, time.monotonic() + options.timeout
        ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False, logging_level="warning")
        self.group = ray.util.placement_group(self.bundles, strategy="PACK")
        self.hosts = [Host(self, index) for index in range(len(self.bundles))]

    def supervisor_on(self, index):
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        wanted = dict(self.bundles[index])
        return self.ray.remote(Supervisor).options(
            num_cpus=wanted.pop("CPU", 0), num_gpus=wanted.pop("GPU", 0), max_concurrency=1,
            scheduling_strategy=PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=index),
        ).remote()  # fmt: skip

    def wait_for_group(self):
        told = time.monotonic()
        while not self.group.wait(timeout_seconds=1):
            if time.monotonic() > self.deadline:
                sys.exit(f"Ray has no room for the run within --nodes-timeout-seconds: {self.wishes()}")
            if time.monotonic() - told > PENDING_SECONDS:
                told = time.monotonic()
                print(f"waiting for Ray: {self.wishes()}", flush=True)

    def wishes(self):
        have, free = self.ray.cluster_resources(), self.ray.available_resources()
        return (
            f"bundles of {[bundle[self.resource] for bundle in self.bundles]} {self.resource}s are asked for; the cluster has "
            f"{have.get(self.resource, 0):g}, of which {free.get(self.resource, 0):g} are free"
        )

    def settings(self, index):
        mine = {name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ}
        return mine | {
            "SLIME_NODE_RANK": str(index), "SLIME_NUM_NODES": str(len(self.hosts)), "SLIME_MASTER_ADDR": self.address,
            "SLIME_MASTER_PORT": str(self.port), "SLIME_RUN_TOKEN": self.token,
        }  # fmt: skip

    def run(self):
        self.wait_for_group()
        self.token = secrets.token_hex(32)
        self.address, self.port = self.ray.get(self.hosts[0].place())
        self.hosts[0].start(self.settings(0))
        for host in self.hosts[1:]:
            host.place()
            host.start(self.settings(host.index))
        while (code := self.look()) is None:
            time.sleep(POLL_SECONDS)
        return code

    def look(self):
        """The controller's exit code, once it has ended."""
        for host in self.hosts:
            if time.monotonic() < host.not_before:
                continue
            if host.not_before:
                host.not_before = 0.0
                host.place()
                host.start(self.settings(host.index))
            try:
                answer = host.poll()
            except self.ray.exceptions.RayError as error:
                if host.index == 0:
                    print(f"the controller's host is lost; the command given again goes on: {error}", flush=True)
                    return 1
                self.again(host, f"is lost: {str(error).splitlines()[0]}")
                continue
            if answer is None:
                continue
            text, code = answer
            host.show(text)
            if code is None:
                continue
            if host.index == 0:
                return code if code >= 0 else 128 - code
            if code != 0:
                self.again(host, f"ended with exit code {code}")
        return None

    def again(self, host, why):
        print(f"host {host.index} {why}; it is started again", flush=True)
        self.ray.kill(host.actor)
        host.not_before, host.answer = time.monotonic() + 1, None

    def stop(self):
        """What runs is asked to end, and has a moment for it."""
        for host in self.hosts:
            if host.actor is not None:
                host.actor.signal.remote(signal.SIGTERM)
        end = time.monotonic() + KILL_SECONDS
        while time.monotonic() < end and self.look() is None:
            time.sleep(POLL_SECONDS)

    def close(self):
        """Nothing is left: neither processes nor devices that are held."""
        for host in self.hosts:
            if host.actor is not None:
                self.ray.kill(host.actor)
        self.ray.util.remove_placement_group(self.group)


def main():
    parser = argparse.ArgumentParser(description="A run of `slime train` on a Ray cluster.")
    parser.add_argument("--places", type=int, action="append", required=True, help="devices of a host; once for each")
    parser.add_argument("--resource", choices=("CPU", "GPU"), default="GPU")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds in which Ray finds room")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    try:
        import ray  # noqa: F401
    except ImportError:
        sys.exit(f"--launcher ray: {sys.executable} has no package ray; --plugin-python names the Python that has it")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        cluster = Cluster(options)
    except ConnectionError as error:
        sys.exit(f"--launcher ray: no Ray cluster is there (ray start --head, or RAY_ADDRESS): {error}")
    try:
        sys.exit(cluster.run())
    except SystemExit as ending:
        if ending.code == TERMINATED:
            cluster.stop()
        raise
    finally:
        cluster.close()


if __name__ == "__main__":
    main()

"""Somebody who reaches every port of a run and was not given its token: connects, says all kinds of things, and keeps what is
answered. It sees more than a stranger would: the ports at once, from /proc."""

import os
import re
import signal
import socket
import struct
import threading
import time


def tree(process):
    """A process and all that it has started."""
    found = [process]
    try:
        for task in os.listdir(f"/proc/{process}/task"):
            for child in open(f"/proc/{process}/task/{task}/children").read().split():
                found += tree(int(child))
    except OSError:
        pass  # it has ended
    return found


def listening(processes):
    """(process, address, port) of all sockets that listen."""
    where = {}
    for table in ("tcp", "tcp6"):
        for line in open(f"/proc/net/{table}").read().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                address, port = fields[1].split(":")
                where[fields[9]] = (address, int(port, 16))
    for process in processes:
        try:
            for each in os.listdir(f"/proc/{process}/fd"):
                match = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{process}/fd/{each}"))
                if match and match[1] in where:
                    yield (process, *where[match[1]])
        except OSError:
            continue


def frame(kind, payload):
    return b"SLMF" + struct.pack("<IQ", kind, len(payload)) + payload


HELLOS = [frame(201, b"n" * 32 + bytes([len(role)]) + role + claim) for role, claim in (
    (b"host", b'{"program":"1-a","host":"stranger","rank":1,"num_devices":2}'), (b"worker", b'{"worker":1,"is_data":false}'),
    (b"rank", b"0 1 -1 4000 127.0.0.1"), (b"rank", b"0 1 9 0 127.0.0.1"), (b"follower", b"1 0"),
)]  # fmt: skip
WORDS = [
    b"", b"\0", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(512), b"\xff" * 70_000,
    bytes([0]) + struct.pack("<I", 0x3C85F7CE) + bytes([17]),  # the keys of a TCPStore
    struct.pack("<Q", 0), struct.pack("<Q", 1) + b"\0" * 64,  # as Gloo's pairs begin
    frame(101, b'{"token":"","rank":1}'), frame(1, b"task"), frame(2, b""), frame(6, b"0"), frame(9, b"0"), b"SLMF" + b"\xff" * 12,
    *HELLOS, *(hello[:40] for hello in HELLOS[:2]),
    *(hello + frame(203, b"p" * 32) for hello in HELLOS), *(hello + frame(203, b"p" * 31) for hello in HELLOS[:1]),
]  # fmt: skip


class Strangers:
    """Until the block ends, at every port that the processes and their children listen at."""

    def __init__(self, processes, token):
        self.processes, self.token = processes, token
        self.ports, self.answers, self.lines, self.settings = set(), [], set(), {}
        self.silent, self.over = [], threading.Event()
        looks = (self._visit, self._look_for_ports, self._look_at_processes)
        self.threads = [threading.Thread(target=look) for look in looks]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()
        for each in self.silent:
            each.close()

    def _all(self):
        return [each for process in self.processes for each in tree(process.pid)]

    def _look_for_ports(self):
        """That at which ranks meet is there until all of them have."""
        while not self.over.wait(0.005):
            self.ports |= {(address, port) for _, address, port in listening(self._all())}

    def _look_at_processes(self):
        """Command lines are there for moments. Each worker stands still for a while when it is first seen, those of the last
        host until the port where the ranks wait for them has been found."""
        held = set()
        while not self.over.wait(0.02):
            last = tree(self.processes[-1].pid)
            for process in self._all():
                try:
                    line = open(f"/proc/{process}/cmdline", "rb").read()
                    self.lines.add(line)
                    if line.split(b"\0")[1:2] == [b"worker"] and process not in held:
                        held.add(process)
                        os.kill(process, signal.SIGSTOP)
                        self._wait_for_ports(2 if process in last else 0)
                        os.kill(process, signal.SIGCONT)
                    settings = open(f"/proc/{process}/environ", "rb").read()
                    self.settings[process] = self.token.encode() in settings  # the last look counts
                except OSError:
                    continue

    def _wait_for_ports(self, count):
        end = time.monotonic() + 10
        time.sleep(0.3)
        while len(self.ports) < count and time.monotonic() < end and not self.over.is_set():
            time.sleep(0.02)

    def _visit(self):
        number = 0
        while not self.over.is_set():
            for address, port in sorted(self.ports):
                for _ in range(4):
                    number += 1
                    self._say(port, WORDS[number % len(WORDS)], stays=number % 7 == 0)
            time.sleep(0.01)

    def _say(self, port, words, stays):
        try:
            connection = socket.create_connection(("127.0.0.1", port), 1)
            connection.settimeout(0.05)
            connection.sendall(words)
            if stays and len(self.silent) < 300:
                self.silent.append(connection)  # and says no more
                return
            with connection:
                while answer := connection.recv(65536):
                    self.answers.append(answer)
        except OSError:
            pass  # nobody listens any more, or says anything

    def check(self):
        """What they learned: challenges, and that they were wrong."""
        for answer in self.answers:
            assert self.token.encode() not in answer
            assert re.fullmatch(rb"(SLMF\xca\0\0\0 \0{7}.{32})?(SLMF\xcd\0\0\0\0{8})?", answer, re.DOTALL), answer
        assert not any(self.token.encode() in line for line in self.lines)
        assert all(address in ("0100007F",) for address, _ in self.ports), "something listens beyond loopback"

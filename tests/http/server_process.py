"""Starts `slime serve` and `slime router` on free ports of loopback for the tests in this folder."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SLIME", ROOT / "build/release/slime"))
START_TIMEOUT_S = 120


class Program:
    """A running command that serves HTTP. Use as a context manager; `url` has no slash at its end."""

    def __init__(self, *words: str, env: dict[str, str] | None = None):
        self.process = subprocess.Popen(
            [str(PROGRAM), *words],
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
            text=True,
            env={**os.environ, **(env or {})},
        )
        watchdog = threading.Timer(START_TIMEOUT_S, self.process.kill)
        watchdog.start()
        self.ready_line = self.process.stdout.readline()
        watchdog.cancel()
        match = re.search(r"http://\S+", self.ready_line)
        if not match:
            self.stop()
            raise RuntimeError(f"slime {words[0]} did not start; it said {self.ready_line!r}")
        self.url = match[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, how=signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        exit_code = self.process.wait(timeout=60)
        self.process.stdout.close()
        return exit_code

    def request(self, method: str, path: str, body=None, headers: dict[str, str] | None = None):
        """Status and body; the body is parsed when it is JSON."""
        data = None if body is None else json.dumps(body).encode()
        call = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
        try:
            with urllib.request.urlopen(call, timeout=120) as reply:
                status, text = reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def post(self, path: str, body=None):
        return self.request("POST", path, body)

    def get(self, path: str):
        return self.request("GET", path)

    def frames(self, path: str, body):
        """The objects of an event stream; the closing [DONE] must come."""
        call = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(call, timeout=120) as reply:
            assert reply.headers["Content-Type"].startswith("text/event-stream")
            for line in reply:
                data = line.decode().strip()
                if not data:
                    continue
                assert data.startswith("data: "), data
                if data == "data: [DONE]":
                    return
                yield json.loads(data[6:])
        raise AssertionError("the stream ended without [DONE]")


class Server(Program):
    """`slime serve`."""

    def __init__(self, model: str, *flags: str, env: dict[str, str] | None = None):
        super().__init__("serve", "--model", model, "--port", "0", *([] if "--device" in flags else ["--device", "cpu"]), *flags, env=env)
        self.try_line = self.process.stdout.readline()


class Router(Program):
    """`slime router` in front of servers at `urls`, all of which serve already."""

    def __init__(self, urls, *flags: str, env: dict[str, str] | None = None):
        workers = ["--worker-urls", *urls] if urls else []
        super().__init__("router", "--port", "0", "--health-check-interval-secs", "0.2", *workers, *flags, env=env)
        for _ in range(500):
            if not urls or self.get("/get_loads")[0] == 401 or self.num_healthy() == len(urls):
                return
            time.sleep(0.02)
        raise RuntimeError("not all workers became healthy")

    def num_healthy(self):
        return sum(worker["is_healthy"] for worker in self.get("/workers")[1]["workers"])

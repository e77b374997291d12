"""What `slime router` adds to a request and to a token, with a tiny random model on this machine.

    python tests/http/router_overhead.py [streams]

Prints the median of each figure: by the clock of one client with one connection, and in processor time of the router.
"""

import http.client
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import test_serve
from server_process import Router, Server

TOKENS = 512


def connection_to(program):
    host, port = program.url.removeprefix("http://").split(":")
    return http.client.HTTPConnection(host, int(port))


def one_token(connection):
    body = json.dumps({"input_ids": [5], "sampling_params": {"max_new_tokens": 1, "ignore_eos": True, "temperature": 0}})
    start = time.perf_counter()
    connection.request("POST", "/generate", body)
    reply = connection.getresponse()
    reply.read()
    assert reply.status == 200
    return time.perf_counter() - start


def stream(connection):
    body = json.dumps({"input_ids": [5], "stream": True, "sampling_params": {"max_new_tokens": TOKENS, "ignore_eos": True, "temperature": 0}})
    start = time.perf_counter()
    connection.request("POST", "/generate", body)
    reply = connection.getresponse()
    while reply.read1(1 << 16):
        pass
    return time.perf_counter() - start


def cpu_seconds(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def alternate(call, first, second, count):
    """Medians of both, measured in turns."""
    times = ([], [])
    for _ in range(count):
        times[0].append(call(first))
        times[1].append(call(second))
    return tuple(map(statistics.median, times))


def main():
    streams = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    with tempfile.TemporaryDirectory() as scratch:
        model = test_serve.make_model(Path(scratch))
        with Server(str(model), "--incremental-streaming-output") as server, Router([server.url]) as router:
            direct, proxied = connection_to(server), connection_to(router)
            one_token(direct), one_token(proxied)
            before, after = alternate(one_token, direct, proxied, 400)
            print(f"request of one token: {before * 1e6:.0f} us direct, {after * 1e6:.0f} us proxied: {1e6 * (after - before):+.0f} us")
            before, after = alternate(stream, direct, proxied, 20)
            print(f"one stream: {before / TOKENS * 1e6:.1f} us a token direct, {after / TOKENS * 1e6:.1f} us proxied: "
                  f"{1e6 * (after - before) / TOKENS:+.1f} us")
            start = cpu_seconds(router.process)
            rounds = 4
            for _ in range(rounds):
                clients = [threading.Thread(target=stream, args=(connection_to(router),)) for _ in range(streams)]
                for client in clients:
                    client.start()
                for client in clients:
                    client.join()
            spent = cpu_seconds(router.process) - start
            print(f"{streams} streams: {spent / (rounds * streams * TOKENS) * 1e6:.1f} us of the router's processor time a token")


if __name__ == "__main__":
    main()

"""Streams of `slime serve` under load, on this machine's cores, with a tiny model:

    python bench/serving/load.py --streams 512 --seconds 60            # gaps between tokens, memory
    python bench/serving/load.py --streams 2048 --max-running 512 --max-queued 64   # what is refused, and whether the others suffer
    python bench/serving/load.py --streams 64 --seconds 20             # CPU per token

Prints one JSON object. Client and server share the cores; figures of a machine that does something else meanwhile are no figures.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/http"))

from server_process import Server  # noqa: E402
from test_serve import make_model  # noqa: E402


class Stream(asyncio.Protocol):
    """One streamed answer after the other until the time is over; counts frames, not bytes."""

    def __init__(self, shared, number):
        self.shared, self.number = shared, number
        self.last, self.state, self.tail = 0.0, "head", b""

    def connection_made(self, transport):
        self.transport = transport
        self.ask()

    def ask(self):
        self.state, self.last, self.tail = "head", 0.0, b""
        self.transport.write(self.shared.request)

    def data_received(self, data):
        now = time.perf_counter()
        shared = self.shared
        if self.state == "head":
            shared.statuses[data[9:12].decode()] = shared.statuses.get(data[9:12].decode(), 0) + 1
            if data[9:12] != b"200":
                shared.refused += 1
                asyncio.get_running_loop().call_later(1.0, self.again)  # as Retry-After says
                self.state = "refused"
                return
            self.state = "stream"
        if self.state != "stream":
            return
        frames = data.count(b"data: {")
        if frames and now > shared.begins:
            shared.tokens += frames
            if self.last > shared.begins:
                shared.gaps.extend([(now - self.last) / frames] * frames)
        if frames:
            self.last = now
        self.tail = (self.tail + data)[-64:]  # the end may come in two parts
        if self.tail.endswith(b"\r\n0\r\n\r\n") and b"[DONE]" in self.tail:
            shared.answers += 1
            self.again()

    def again(self):
        if time.perf_counter() < self.shared.ends and not self.transport.is_closing():
            self.ask()
        else:
            self.transport.close()

    def connection_lost(self, error):
        self.shared.lost += time.perf_counter() < self.shared.ends
        self.shared.open -= 1
        if not self.shared.open:
            self.shared.done.set()


class Shared:
    def __init__(self, request, begins, ends, streams):
        self.request, self.begins, self.ends, self.open = request, begins, ends, streams
        self.statuses, self.gaps = {}, []
        self.tokens = self.refused = self.answers = self.lost = 0
        self.done = asyncio.Event()


def cpu_seconds(pid):
    """Of the process's threads, by thread."""
    tick = os.sysconf("SC_CLK_TCK")
    seconds = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
        seconds[int(task.name)] = (int(fields[11]) + int(fields[12])) / tick
    return seconds


def memory_mib(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024


async def measure(server, options):
    where = urlsplit(server.url)
    body = json.dumps({"messages": [{"role": "user", "content": "Tell me something. " * 4}], "stream": True, "max_tokens": options.tokens,
                       "temperature": 1.0, "ignore_eos": True}).encode()
    request = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
               f"Content-Length: {len(body)}\r\n\r\n").encode() + body
    start = time.perf_counter()
    shared = Shared(request, start + options.warm_up, start + options.warm_up + options.seconds, options.streams)
    loop = asyncio.get_running_loop()
    for number in range(options.streams):
        await loop.create_connection(lambda number=number: Stream(shared, number), where.hostname, where.port)
    await asyncio.sleep(max(0.0, shared.begins - time.perf_counter()))
    cpu, tokens, memory = cpu_seconds(server.process.pid), shared.tokens, [memory_mib(server.process.pid)]
    begun = time.perf_counter()
    while time.perf_counter() < shared.ends:
        await asyncio.sleep(1)
        memory.append(memory_mib(server.process.pid))
    spent = {task: seconds - cpu.get(task, 0) for task, seconds in cpu_seconds(server.process.pid).items()}
    tokens, elapsed = shared.tokens - tokens, time.perf_counter() - begun
    await asyncio.wait_for(shared.done.wait(), timeout=120)
    gaps = sorted(shared.gaps)
    by_thread = sorted(spent.values(), reverse=True)

    def at(share):
        return round(1000 * gaps[min(len(gaps) - 1, int(share * len(gaps)))], 3) if gaps else None

    median, late = at(0.5), at(0.99)
    return {
        "streams": options.streams, "seconds": round(elapsed, 1), "tokens_per_second": round(tokens / elapsed), "answers": shared.answers,
        "statuses": shared.statuses, "connections_lost": shared.lost, "gap_ms_median": median, "gap_ms_p99": late,
        "p99_over_median": round(late / median, 2) if median else None, "memory_mib_first": round(memory[0]), "memory_mib_last": round(memory[-1]),
        "memory_mib_most": round(max(memory)), "cpu_us_per_token": round(1e6 * sum(by_thread) / max(tokens, 1), 1),
        # The thread that computes is the busiest; what the others did is HTTP, JSON and text.
        "cpu_us_per_token_without_engine": round(1e6 * sum(by_thread[1:]) / max(tokens, 1), 1), "cores_used": round(sum(by_thread) / elapsed, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="default: a random llama of tests/fixtures")
    parser.add_argument("--streams", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--warm-up", type=float, default=5)
    parser.add_argument("--tokens", type=int, default=256, help="of each answer")
    parser.add_argument("--max-running", type=int, default=512)
    parser.add_argument("--max-queued", type=int, default=65536)
    parser.add_argument("--kv-cache-gib", type=float, default=0.25, help="touched once it is used: memory is flat after that")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model = options.model or str(make_model(Path(scratch)))
        with Server(model, "--max-running-requests", str(options.max_running), "--max-queued-requests", str(options.max_queued),
                    "--context-length", "1024", "--kv-cache-gib", str(options.kv_cache_gib), "--max-connections", "8192", env={"OMP_NUM_THREADS": "1"}) as server:
            print(json.dumps(asyncio.run(measure(server, options))))


if __name__ == "__main__":
    main()

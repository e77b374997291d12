"""What a call of Tinker's API costs beside its work; by default on this machine's CPU, with a model of 116,000 parameters:

    python bench/tinker/calls.py                       # build/release/slime, 300 calls of each
    python bench/tinker/calls.py --calls 1000 --program path/to/slime --markdown
    TMPDIR=/dev/shm python bench/tinker/calls.py       # the store in memory: what the file system costs is the difference
    python bench/tinker/calls.py --device cuda --shape qwen3-4b --rank 32 --row-seconds 3 --only optim_step sampler "1 token"
    python bench/tinker/calls.py --device cuda --model path/to/Qwen3-4B --rank 32 --row-seconds 3

--shape makes a model directory up (`slime bench made-up-model`), --only takes rows whose names have one of the words. On a GPU leave the
last rows out, or give --row-seconds: a pass of 262,144 tokens of 4B takes ten seconds.

Starts `slime tinker` and sends what clients send over one connection: the request, and retrieve_future for what is answered by a future. A
call's whole time is taken here, from its first byte to the last of its result, so it bounds what it costs beyond its work. Of training
requests the store says more: the server writes each when it is accepted, and its answer when it is done, which inotify tells at once.

    whole     of the call, with its work
    work      from request to answer in the store: the wait for its turn, the work, and writing the answer
    beyond    whole - work
    late      from the answer in the store to the answer here: a server that looks for answers now and then would show its interval

Rows "while 32 are drawn" are measured beside requests for 32 samples of the base. Before a save by name is measured the one before is in
the store. The last rows are updates behind a pass of more and more work, which the client waits for meanwhile: `late` stays what it is.
Standard output is a JSON line for each row, or a table. A machine that does something else meanwhile shows that in all columns. The server
is killed at the end.
"""

import argparse
import ctypes
import http.client
import json
import os
import platform
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/end_to_end"))

from tinker_program import KEY, NAME, PROTOBUF, TinkerProgram, pass_message  # noqa: E402

IN_MOVED_TO = 0x80
EVENT = struct.Struct("iIII")
ADAM = {"learning_rate": 1e-4, "eps": 1e-8}
WAIT_S = 10
LENGTH = 256  # of a long datum


class Moments:
    """When files come into a folder, by their names."""

    def __init__(self, folder: Path):
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = libc.inotify_init1(os.O_CLOEXEC)
        if self.descriptor < 0 or libc.inotify_add_watch(self.descriptor, os.fsencode(folder), IN_MOVED_TO) < 0:
            raise OSError(ctypes.get_errno(), f"{folder} cannot be watched")
        self.seen, self.changed = {}, threading.Condition()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            data = os.read(self.descriptor, 1 << 16)
            now = time.perf_counter()
            with self.changed:
                at = 0
                while at < len(data):
                    *_, size = EVENT.unpack_from(data, at)
                    at += EVENT.size
                    self.seen[data[at : at + size].rstrip(b"\0").decode()] = now
                    at += size
                self.changed.notify_all()

    def of(self, name: str) -> float:
        with self.changed:
            if not self.changed.wait_for(lambda: name in self.seen, WAIT_S):
                raise RuntimeError(f"the server has not written {name}")
            return self.seen.pop(name)


class Client:
    def __init__(self, url: str):
        self.connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)

    def call(self, path: str, body=None):
        """The answer: an object, or the bytes of a message."""
        is_message = isinstance(body, bytes)
        data = body if is_message or body is None else json.dumps(body).encode()
        headers = {"Content-Type": PROTOBUF if is_message else "application/json", "X-API-Key": KEY, "Accept": PROTOBUF}
        self.connection.request("GET" if body is None else "POST", f"/api/v1/{path}", data, headers)
        reply = self.connection.getresponse()
        text = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{path}: {reply.status} {text.decode()}")
        return text if PROTOBUF in reply.headers["Content-Type"] else json.loads(text)

    def result(self, accepted: dict):
        while isinstance(answer := self.call("retrieve_future", {"request_id": accepted["request_id"]}), dict):
            if answer.get("type") != "try_again":
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                break
        return answer


def row_of(name: str, samples: list[dict[str, float]]) -> dict:
    """Milliseconds: median and 99th percentile of each column."""
    row = {"call": name, "calls": len(samples)}
    for column in samples[0]:
        values = sorted(1000 * sample[column] for sample in samples)
        row[f"{column}_p50_ms"] = round(statistics.median(values), 3)
        row[f"{column}_p99_ms"] = round(values[min(len(values) - 1, int(0.99 * len(values)))], 3)
    return row


class Drawing:
    """Requests for samples of a sampling session, one after the other, on a connection of their own, until the end of a `with`."""

    def __init__(self, url: str, sampler: str, samples: int, tokens: int):
        self.client, self.is_over, self.num_answered, self.failure = Client(url), False, 0, None
        prompt, params = {"chunks": [{"type": "encoded_text", "tokens": [5, 6, 7, 8]}]}, {"max_tokens": tokens, "temperature": 1.0, "stop": []}
        self.body = {"sampling_session_id": sampler, "prompt": prompt, "num_samples": samples, "sampling_params": params}
        self.thread = threading.Thread(target=self.draw)

    def draw(self):
        try:
            while not self.is_over:
                self.client.result(self.client.call("asample", self.body))
                self.num_answered += 1
        except Exception as error:  # told where the thread is joined
            self.failure = error

    def __enter__(self):
        self.thread.start()
        time.sleep(0.5)  # its samples are being drawn
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.thread.join()
        if self.failure:
            raise self.failure


class Measurement:
    def __init__(self, program: TinkerProgram, store: Path, options):
        self.client, self.count, self.seq_id, self.sample_id, self.sampler_id, self.rows = Client(program.url), options.calls, 0, 0, 0, []
        self.url, self.options, self.saved, self.last = program.url, options, None, None
        self.session = self.client.call("create_session", {"tags": [], "sdk_version": "0.38.0", "type": "create_session"})["session_id"]
        asked = {"session_id": self.session, "model_seq_id": 0, "base_model": NAME, "lora_config": {"rank": options.rank}}
        made = self.client.call("create_model", asked)
        self.model = self.client.result(made)["model_id"]
        self.train("optim_step", lambda seq_id: {"adam_params": ADAM})  # makes the folder
        self.moments = Moments(store / self.model.replace(":", "%3A") / "requests")

    def wants(self, name: str) -> bool:
        return not self.options.only or any(word in name for word in self.options.only)

    def add(self, name: str, measure, count: int | None = None, warm_up: int = 5):
        if not self.wants(name):
            return
        for _ in range(warm_up):
            measure()
        samples, end = [], time.monotonic() + self.options.row_seconds
        while not samples or (len(samples) < (count or self.count) and time.monotonic() < end):
            samples.append(measure())
        self.rows.append(row_of(name, samples))

    def next_body(self, body_of):
        self.seq_id += 1
        body = body_of(self.seq_id)
        return {"model_id": self.model, "seq_id": self.seq_id, **body} if isinstance(body, dict) else body

    def train(self, route: str, body_of):
        return self.client.result(self.client.call(route, self.next_body(body_of)))

    def trained(self, route: str, body_of):
        def measure():
            body = self.next_body(body_of)
            begun = time.perf_counter()
            self.client.result(self.client.call(route, body))
            ended = time.perf_counter()
            accepted = self.moments.of(f"{self.seq_id}.request")
            done = min(self.moments.of(f"{self.seq_id}.answer"), ended)  # the thread that watches may be the later one
            return {"whole": ended - begun, "work": done - accepted, "beyond": ended - begun - (done - accepted), "late": ended - done}

        return measure

    def plain(self, path: str, body=None):
        def measure():
            begun = time.perf_counter()
            self.client.call(path, body)
            return {"whole": time.perf_counter() - begun}

        return measure

    def sampled(self, sampler_of):
        def measure():
            sampler = sampler_of()
            self.sample_id += 1
            prompt = {"chunks": [{"type": "encoded_text", "tokens": [5, 6, 7, 8]}]}
            params = {"max_tokens": 1, "temperature": 1.0, "stop": []}
            body = {"sampling_session_id": sampler, "seq_id": self.sample_id, "prompt": prompt, "num_samples": 1, "sampling_params": params}
            begun = time.perf_counter()
            self.client.result(self.client.call("asample", body))
            return {"whole": time.perf_counter() - begun}

        return measure

    def last_sampler(self) -> str:
        self.last = self.last or self.new_sampler()
        return self.last

    def saved_by_name(self):
        """Each when the one before is in the store: who asks for it waits for that."""
        measure = self.trained("save_weights_for_sampler", lambda seq_id: {"path": f"s{seq_id}"})

        def measure_one():
            if self.saved:
                self.client.call("weights_info", {"tinker_path": self.saved})
            sample = measure()
            self.saved = f"tinker://{self.model}/sampler_weights/s{self.seq_id}"
            return sample

        return measure_one

    def new_and_sampled(self):
        sample = self.sampled(self.new_sampler)

        def measure():
            begun = time.perf_counter()
            sample()
            return {"whole": time.perf_counter() - begun}

        return measure

    def snapshot_body(self, _):
        self.sampler_id += 1
        return {"sampling_session_seq_id": self.sampler_id}

    def new_sampler(self) -> str:
        return self.train("save_weights_for_sampler", self.snapshot_body)["sampling_session_id"]

    def behind(self, num_datums: int):
        tokens = [5 + i % 200 for i in range(LENGTH)]
        data = [(tokens, {"target_tokens": [6] * LENGTH, "weights": [1.0] * LENGTH})] * num_datums
        written = pass_message(self.model, 0, data)[len(pass_message(self.model, 0, [])) :]

        def measure():
            passed = self.client.call("forward_backward", self.next_body(lambda seq_id: pass_message(self.model, seq_id, []) + written))
            body = self.next_body(lambda _: {"adam_params": ADAM})
            begun = time.perf_counter()
            self.client.result(self.client.call("optim_step", body))
            ended = time.perf_counter()
            done = min(self.moments.of(f"{self.seq_id}.answer"), ended)
            self.client.result(passed)
            return {"whole": ended - begun, "late": ended - done}

        return measure

    def answered(self):
        accepted = self.client.call("optim_step", {"model_id": self.model, "seq_id": self.seq_id, "adam_params": ADAM})  # known already
        begun = time.perf_counter()
        self.client.result(accepted)
        return {"whole": time.perf_counter() - begun}

    def take(self):
        self.add("healthz", self.plain("healthz"))
        self.add("get_server_capabilities", self.plain("get_server_capabilities"))
        self.add("session_heartbeat", self.plain("session_heartbeat", {"session_id": self.session}))
        self.add("get_info", self.plain("get_info", {"model_id": self.model}))
        self.add("training_runs", self.plain("training_runs"))
        tokens = [5, 6, 7, 8]
        data = [(tokens, {"target_tokens": [6, 7, 8, 9], "weights": [1.0] * 4})]
        inputs = {"target_tokens": {"data": [6, 7, 8, 9], "dtype": "int64", "shape": [4]}}
        inputs["weights"] = {"data": [1.0] * 4, "dtype": "float32", "shape": [4]}
        datum = {"model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens}]}, "loss_fn_inputs": inputs}
        as_json = {"data": [datum], "loss_fn": "cross_entropy"}
        self.add("forward", self.trained("forward", lambda _: {"forward_input": as_json}))
        self.add("forward_backward, JSON", self.trained("forward_backward", lambda _: {"forward_backward_input": as_json}))
        self.add("forward_backward", self.trained("forward_backward", lambda seq_id: pass_message(self.model, seq_id, data)))
        self.add("optim_step", self.trained("optim_step", lambda _: {"adam_params": ADAM}))
        self.add("retrieve_future, of an answer", self.answered)
        self.take_snapshots()
        for num_datums in (4, 64, 1024):
            name = f"update behind a pass of {LENGTH * num_datums:,} tokens"
            self.add(name, self.behind(num_datums), max(10, self.count // 10), warm_up=1)

    def updated_before(self, measure):
        """With other weights each time: those that have not changed are not copied again."""

        def measure_one():
            self.train("optim_step", lambda _: {"adam_params": ADAM})
            return measure()

        return measure_one

    def take_snapshots(self):
        snapshot = self.updated_before(self.trained("save_weights_for_sampler", self.snapshot_body))
        by_name = self.updated_before(self.saved_by_name())
        self.add("save_weights_for_sampler", snapshot)
        self.add("save_weights_for_sampler, by name", by_name)
        self.add("save_weights", self.trained("save_weights", lambda seq_id: {"path": f"w{seq_id}"}), warm_up=1)
        base = {"session_id": self.session, "base_model": NAME}
        self.add("create_sampling_session", self.plain("create_sampling_session", base))
        of_base = self.client.call("create_sampling_session", base)["sampling_session_id"]
        self.add("sample, 1 token of the base", self.sampled(lambda: of_base))
        self.add("sample, 1 token of an adapter", self.sampled(self.last_sampler))
        self.add("sample, 1 token of a new adapter", self.updated_before(self.sampled(self.new_sampler)))
        new_token, with_token = "save_weights_for_sampler and 1 token of it", self.updated_before(self.new_and_sampled())
        self.add(new_token, with_token)
        rows = {"save_weights_for_sampler": snapshot, "save_weights_for_sampler, by name": by_name, new_token: with_token}
        rows = [(f"{name}, while 32 are drawn", measure) for name, measure in rows.items()]
        if any(self.wants(name) for name, _ in rows):
            with Drawing(self.url, of_base, samples=32, tokens=200):
                for name, measure in rows:
                    self.add(name, measure)


def cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def print_table(rows: list[dict]):
    columns = ["whole", "work", "beyond", "late"]
    print("| call, ms | " + " | ".join(f"{column}: median | p99" for column in columns) + " |")
    print("| --- |" + " --- |" * (2 * len(columns)))
    for row in rows:
        cells = [f"{row[key]:.2f}" if key in row else "" for column in columns for key in (f"{column}_p50_ms", f"{column}_p99_ms")]
        print(f"| {row['call']} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.environ.get("SLIME", ROOT / "build/release/slime"))
    parser.add_argument("--calls", type=int, default=300, help="of each row")
    parser.add_argument("--row-seconds", type=float, default=1e9, help="after which a row ends, however many calls it has")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="rows whose names have one of these words")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    models = parser.add_mutually_exclusive_group()
    models.add_argument("--model", type=Path, help="its directory; by default a tiny one is made")
    models.add_argument("--shape", help="of bench/gpu/workloads.json, such as qwen3-4b: such a model is made up")
    parser.add_argument("--rank", type=int, default=8, help="of the adapter that is trained")
    parser.add_argument("--state-seconds", type=int, default=1_000_000, help="of the server: by default it saves no state meanwhile")
    parser.add_argument("--markdown", action="store_true", help="a table")
    options = parser.parse_args()
    device = ("--device", "cpu", "--fp32", "--num-threads", "1") if options.device == "cpu" else ("--device", "cuda", "--dtype", "bfloat16")
    with tempfile.TemporaryDirectory() as scratch:
        model, store = options.model or Path(scratch) / "model", Path(scratch) / "store"
        make = [sys.executable, ROOT / "tools/tiny_model.py", model]
        if options.shape:
            make = [options.program, "bench", "made-up-model", "--model", options.shape, "--out", model]
        if not options.model:
            subprocess.run(make, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        program = TinkerProgram(options.program, model, store, "--state-seconds", str(options.state_seconds), device=device)
        try:
            measurement = Measurement(program, store, options)
            measurement.take()
        finally:
            program.stop(signal.SIGKILL)
    of_all = {"model": options.shape or model.name, "rank": options.rank, "device": options.device, "cpu": cpu_name()}
    if options.markdown:
        print(f"{of_all}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.calls} calls\n")
        return print_table(measurement.rows)
    for row in measurement.rows:
        print(json.dumps({**row, **of_all, "load": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    sys.exit(main())

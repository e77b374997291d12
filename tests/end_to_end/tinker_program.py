"""`slime tinker` on a port, with the model of the transcripts and a store that holds the adapter which they load; and messages in Protocol Buffers."""

import json
import re
import shutil
import signal
import struct
import subprocess
import threading
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "tinker"
QWEN3 = ROOT / "tests" / "fixtures" / "models" / "qwen3"
NAME = "tiny/qwen3"
KEY = "tml-tests"
PROTOBUF = "application/x-protobuf"


def write_model(folder, tokenizer):
    """The transcripts' model, with the tokenizer files of another folder."""
    folder.mkdir()
    for file in ("config.json", "model.safetensors"):
        shutil.copy(QWEN3 / file, folder)
    for file in Path(tokenizer).glob("tokenizer*"):
        shutil.copy(file, folder)


def write_store(folder):
    adapter = folder / "seeded" / "weights" / "start"
    adapter.mkdir(parents=True)
    shutil.copy(FIXTURES / "seed_adapter.safetensors", adapter / "adapter_model.safetensors")
    shutil.copy(FIXTURES / "seed_adapter_config.json", adapter / "adapter_config.json")


class TinkerProgram:
    """The process; `url` has no slash at its end."""

    def __init__(self, program, model, store, *flags, name=NAME, port=0, device=("--device", "cpu", "--fp32", "--num-threads", "1")):
        words = [str(program), "tinker", str(model), "--port", str(port), "--store", str(store), "--served-model-name", name]
        words += [*device, *flags]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        watchdog = threading.Timer(120, self.process.kill)
        watchdog.start()
        said = []
        self.url = None
        for line in self.process.stderr:
            said.append(line)
            if found := re.search(r"http://\S+", line):
                self.url = found[0]
                break
        watchdog.cancel()
        assert self.url, "".join(said)
        self.lines = []
        threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True).start()

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(timeout=60)

    def call(self, path, body=None, method=None, headers=None):
        """Status, and the answer: an object, or the bytes of a message. `body`: an object, or such bytes."""
        is_message = isinstance(body, bytes)
        sent = {"Content-Type": PROTOBUF if is_message else "application/json", "X-API-Key": KEY, **(headers or {})}
        data = body if is_message or body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/api/v1/{path}", data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                text = answer.read()
                return answer.status, text if PROTOBUF in answer.headers["Content-Type"] else json.loads(text)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def post(self, route, **body):
        status, answer = self.call(route, body)
        assert status == 200, answer
        return answer

    def result(self, request_id):
        while True:
            status, answer = self.call("retrieve_future", {"request_id": request_id}, headers={"Accept": PROTOBUF})
            assert status == 200, answer
            if isinstance(answer, bytes) or answer.get("type") != "try_again":
                return answer


def fields(message):
    """[(number, value)] of a message; values are whole numbers, floats or bytes."""
    found, at = [], 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            value = varint()
        elif key & 7 == 1:
            value = struct.unpack_from("<d", message, at)[0]
            at += 8
        else:
            assert key & 7 == 2, key
            size = varint()
            value = message[at : at + size]
            assert len(value) == size
            at += size
        found.append((key >> 3, value))
    return found


def of(message, number):
    return [value for each, value in fields(message) if each == number]


def table(entries):
    """{key: value} of a map's entries."""
    return {of(each, 1)[0].decode(): (of(each, 2) or [0.0])[0] for each in entries}


def numbers(data, code):
    return list(struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data))


def read_pass(message):
    """Metrics, and the columns of each datum."""
    outputs = []
    for record in of(message, 2):
        for name, tensor in table(of(record, 2)).items():
            values, offsets = of(tensor, 1)[0], numbers(of(tensor, 2)[0], "q")
            for i, (begin, end) in enumerate(zip(offsets, offsets[1:])):
                if len(outputs) <= i:
                    outputs.append({})
                outputs[i][name] = numbers(values[begin:end], "f")
    return table(of(message, 3)), outputs


def read_top(message):
    """Per position [token, log-prob] of the best ones; None where there is none."""
    tokens, log_probs, count = numbers(of(message, 1)[0], "i"), numbers(of(message, 2)[0], "f"), of(message, 3)[0]
    rows = [[[tokens[i + k], log_probs[i + k]] for k in range(count)] for i in range(0, len(tokens), count)]
    return [row if row[0][1] > -99999 else None for row in rows]


def read_samples(message):
    sequences = [
        {"tokens": numbers(of(each, 2)[0], "i"), "logprobs": numbers(of(each, 3)[0], "f"), "stop_reason": "length" if of(each, 1) else "stop"}
        for each in of(message, 1)
    ]
    made = {"sequences": sequences}
    if scores := of(message, 2):
        made["prompt_logprobs"] = [None, *numbers(scores[0], "f")[1:]]
    if top := of(message, 3):
        made["topk_prompt_logprobs"] = read_top(top[0])
    return made


def _varint(value):
    made = b""
    while value >= 0x80:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if isinstance(value, float):
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def pass_message(model, seq_id, data, loss_fn="cross_entropy", forward_only=False):
    """A forward_backward of [(tokens, {name: list})]; whole numbers are int64."""
    made = field(1, model) + field(2, seq_id) + field(4, loss_fn) + (field(6, 1) if forward_only else b"")
    for tokens, inputs in data:
        datum = field(1, field(1, field(1, struct.pack(f"<{len(tokens)}i", *tokens))))
        for name, values in inputs.items():
            is_whole = isinstance(values[0], int)
            tensor = field(1, struct.pack(f"<{len(values)}{'q' if is_whole else 'f'}", *values)) + field(3, 2 if is_whole else 1)
            datum += field(2, field(1, name) + field(2, tensor + field(4, _varint(len(values)))))
        made += field(3, datum)
    return made

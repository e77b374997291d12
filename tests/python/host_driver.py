"""The program's side of a plug-in host, for tests: starts `python3 -m slime.host` and speaks its frames."""

import array
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python"
sys.path.insert(0, str(PACKAGE))

from slime.host.frames import (  # noqa: E402
    ANSWERS,
    ASKS,
    BEAT,
    CALLS,
    CANCEL,
    CONFIGURE,
    PROTOCOL,
    READY,
    REPLIES,
    Columns,
    FrameSocket,
    decode,
    encode,
)
from slime.host.records import groups_from_records, groups_to_records  # noqa: E402

FLAGS = {
    "custom_rm_path": None,
    "custom_generate_function_path": None,
    "rm_type": None,
    "group_rm": False,
    "reward_key": None,
    "partial_rollout": False,
    "mask_offpolicy_in_partial_rollout": False,
    "n_samples_per_prompt": 2,
    "rollout_batch_size": 2,
    "over_sampling_batch_size": 2,
    "rollout_global_dataset": True,
    "rollout_temperature": 1.0,
    "rollout_top_p": 1.0,
    "rollout_top_k": -1,
    "rollout_max_response_len": 8,
    "rollout_stop": None,
    "rollout_stop_token_ids": None,
    "rollout_skip_special_tokens": False,
    "sglang_server_concurrency": 8,
    "rollout_num_engines": 1,
    "hf_checkpoint": None,
    "dynamic_sampling_filter_path": None,
    "rollout_sample_filter_path": None,
    "rollout_all_samples_process_path": None,
    "buffer_filter_path": None,
}


class HostProcess:
    """`hooks` is [(hook, path)]. Asks of the host are answered by `on_ask(ask, arrays) -> (value, columns)`."""

    def __init__(self, hooks, folder, flags=None, on_ask=None, python=sys.executable):
        ours, theirs = socket.socketpair()
        environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}{os.pathsep}{folder}"}
        self.process = subprocess.Popen(
            [python, "-m", "slime.host", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=str(folder),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        theirs.close()
        self.socket = ours
        self.frames = FrameSocket(ours)
        self.on_ask = on_ask
        self.answers, self.beats, self.asks, self.next_id = {}, [], [], 1
        self.ready = None
        head = {
            "protocol": PROTOCOL,
            "args": {**FLAGS, **(flags or {})},
            "hooks": [{"hook": hook, "path": path} for hook, path in hooks],
            "paths": [str(folder)],
        }
        self.frames.send(CONFIGURE, encode(head))
        self.wait_until(lambda: self.ready is not None)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.frames.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.output = self.process.stdout.read().decode()
        self.process.stdout.close()

    def wait_until(self, done, seconds=20.0):
        end = time.monotonic() + seconds
        while not done():
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError("the host did not answer in time")
            self.frames.wait(left)
            for kind, payload in self.frames.receive():
                self._take(kind, *decode(payload))
            if not self.frames.is_open and not done():
                raise EOFError(f"the host is gone: {self.process.stdout.read().decode()}")

    def _take(self, kind, head, arrays):
        if kind == READY:
            self.ready = head
        elif kind == ANSWERS:
            for answer in head["answers"]:
                answer["arrays"] = arrays
                self.answers[answer["id"]] = answer
        elif kind == BEAT:
            self.beats.append(head["loop"])
        elif kind == ASKS:
            for ask in head["asks"]:
                self.asks.append(ask)
                try:
                    value, columns = self.on_ask(ask, arrays)
                    reply = {"id": ask["id"], "value": value}
                except Exception as error:
                    reply, columns = {"id": ask["id"], "error": str(error)}, Columns()
                self.frames.send(REPLIES, encode({"replies": [reply]}, columns.arrays))

    def begin(self, calls, columns=(), descriptors=(), **head):
        """Sends calls; their ids."""
        ids = []
        for call in calls:
            call["id"] = self.next_id
            call.setdefault("hook", 0)
            ids.append(self.next_id)
            self.next_id += 1
        payload = encode({"calls": calls, **head}, columns)
        if descriptors:
            header = b"SLMF" + CALLS.to_bytes(4, "little") + len(payload).to_bytes(8, "little")
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            self.socket.sendmsg([header], rights)
            self.socket.setblocking(True)
            self.socket.sendall(payload)
            self.socket.setblocking(False)
        else:
            self.frames.send(CALLS, payload)
        return ids

    def finish(self, ids, seconds=20.0):
        self.wait_until(lambda: all(number in self.answers for number in ids), seconds)
        return [self.answers.pop(number) for number in ids]

    def call(self, call, columns=(), **head):
        """The answer to one call."""
        return self.finish(self.begin([call], columns, **head))[0]

    def cancel(self, **head):
        self.frames.send(CANCEL, encode(head))


def records(samples):
    """(records, columns) of samples or lists of them."""
    columns = Columns()
    return groups_to_records(samples, columns), columns.arrays


def samples_of(answer, name):
    return groups_from_records(answer["value"][name], answer["arrays"])

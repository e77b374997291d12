"""Questions of user code to the program, and its answers."""

import asyncio
import itertools
import threading
from concurrent.futures import Future

from slime.channel import ProgramError
from slime.host.frames import ASKS, Columns, encode
from slime.host.records import groups_from_records, groups_to_records

__all__ = ["Program", "DataSourceProxy"]


class Program:
    """`ask` from coroutines, `ask_and_wait` from anywhere: on the event loop's own thread it reads the socket itself, and
    what else arrives meanwhile is looked at afterwards."""

    def __init__(self, frames, take_frames):
        self._frames = frames
        self._take_frames = take_frames
        self._thread = threading.get_ident()
        self._numbers = itertools.count(1)
        self._waiting = {}
        self._lock = threading.Lock()

    def _send(self, what, arguments, columns):
        future = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = future
        head = {"asks": [{"id": number, "what": what, **arguments}]}
        self._frames.send(ASKS, encode(head, columns.arrays))
        return future

    def tell(self, what, arguments):
        """Asks nothing: whatever the answer is, nobody waits for it."""
        with self._lock:
            number = next(self._numbers)
        self._frames.send(ASKS, encode({"asks": [{"id": number, "what": what, **arguments}]}, []))

    def answer(self, head, arrays):
        """A frame of replies; in the thread of the event loop."""
        for reply in head["replies"]:
            with self._lock:
                future = self._waiting.pop(reply["id"], None)
            if future is None or future.cancelled():
                continue
            if "error" in reply:
                future.set_exception(ProgramError(reply["error"]))
            else:
                future.set_result((reply.get("value"), arrays))

    def fail_all(self):
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ProgramError("the program is gone"))

    async def ask_with_arrays(self, what, arguments, columns):
        return await asyncio.wrap_future(self._send(what, arguments, columns))

    def ask_and_wait_with_arrays(self, what, arguments, columns):
        future = self._send(what, arguments, columns)
        while threading.get_ident() == self._thread and not future.done():
            self._frames.wait()
            self._take_frames()
            if not self._frames.is_open and not future.done():
                self.fail_all()
        return future.result()

    async def ask(self, what, arguments):
        return (await self.ask_with_arrays(what, arguments, Columns()))[0]

    def ask_and_wait(self, what, arguments):
        return self.ask_and_wait_with_arrays(what, arguments, Columns())[0]


class DataSourceProxy:
    """The program's data set and buffer, as `data_source` of rollout functions."""

    def __init__(self, program):
        self._program = program

    def get_samples(self, num_samples):
        """That many groups; those that were given back first. Fewer when the program has no more."""
        value, arrays = self._program.ask_and_wait_with_arrays(
            "get_samples", {"count": int(num_samples)}, Columns()
        )
        return groups_from_records(value["groups"], arrays)

    def add_samples(self, samples):
        """Gives groups back; they are given out again before new ones."""
        columns = Columns()
        groups = groups_to_records(samples, columns)
        self._program.ask_and_wait_with_arrays("add_samples", {"groups": groups}, columns)

    def save(self, rollout_id):
        """Nothing: the program saves its own."""

    def load(self, rollout_id=None):
        """Nothing: the program loads its own."""

    def get_buffer_length(self):
        return self._program.ask_and_wait("buffer_length", {})

    def __len__(self):
        return self._program.ask_and_wait("num_prompts", {})

"""The board of calls: memory that the program reads at any time, and when this process has died.

It says which calls' functions have begun, since when, and which one each thread executes at this moment, so that the
program knows whose fault a death was without calling anything again. Answers that are not sent yet lie in it too.

    words of 8 bytes, little-endian
    0            nanoseconds in which some call held the event loop for longer than HELD_NS at a stretch
    1            bytes of answers in the outbox
    2 ..         registers: (call's id or 0, since when) of the event loop, of the thread for functions of a step, of others
    then         slots: (call's id, when its function began, word 0 at that time, its own part of word 0 since then)
    then         the outbox: frames of answers

Times are CLOCK_MONOTONIC's nanoseconds. Words are written whole; one thread writes each, the lock apart.
"""

import contextvars
import mmap
import threading
import time
import types

__all__ = ["Board", "Call", "current"]

HELD_NS = 50_000_000
LOOP, STEP_THREAD, FIRST_OTHER = 0, 1, 2
_REGISTER_WORDS, _SLOT_WORDS, _HEADER_WORDS = 2, 4, 2

current = contextvars.ContextVar("slime_call", default=None)


class Call:
    """One call of the program: its number, where it stands on the board, how long its function may take."""

    __slots__ = ("number", "slot", "seconds", "begun", "held_at_begin", "own_held", "function")

    def __init__(self, number, slot, seconds):
        self.number, self.slot, self.seconds = number, slot, seconds
        self.begun = None  # monotonic nanoseconds
        self.function = None  # the user's, once it is known
        self.held_at_begin = self.own_held = 0


class Board:
    def __init__(self, layout=None, descriptor=None):
        """Without a layout the words are this process's alone."""
        layout = layout or {"registers": 16, "slots": 0, "outbox_bytes": 0}
        self._num_registers, self._num_slots = layout["registers"], layout["slots"]
        words = _HEADER_WORDS + self._num_registers * _REGISTER_WORDS + self._num_slots * _SLOT_WORDS
        self._outbox_begin, self._outbox_bytes = words * 8, layout["outbox_bytes"]
        size = self._outbox_begin + self._outbox_bytes
        self._memory = mmap.mmap(-1 if descriptor is None else descriptor, size)
        self._words = memoryview(self._memory)[: words * 8].cast("q")
        self._slots_begin = words - self._num_slots * _SLOT_WORDS
        self._lock = threading.Lock()
        self._free = list(range(self._num_registers - 1, FIRST_OTHER - 1, -1))
        self._held = 0

    # Calls.

    def enter(self, call, register=LOOP):
        """The function of `call` goes on, or begins. Returns what `leave` needs."""
        now = time.monotonic_ns()
        words, place = self._words, _HEADER_WORDS + register * _REGISTER_WORDS
        before = words[place], words[place + 1]
        words[place + 1] = now
        words[place] = call.number
        if call.begun is None:
            self._begin(call, now)
        return place, before, now

    def leave(self, call, mark):
        place, before, since = mark
        words = self._words
        if place == _HEADER_WORDS:
            spent = time.monotonic_ns() - since
            if spent > HELD_NS:
                self._held += spent
                words[0] = self._held
                call.own_held += spent
                slot = self._slot(call)
                if slot is not None and words[slot] == call.number:
                    words[slot + 3] = call.own_held
        words[place] = 0
        words[place + 1] = before[1]
        words[place] = before[0]

    def _slot(self, call):
        if call.slot is None or not 0 <= call.slot < self._num_slots:
            return None
        return self._slots_begin + call.slot * _SLOT_WORDS

    def _begin(self, call, now):
        call.begun, call.held_at_begin = now, self._held
        slot = self._slot(call)
        if slot is not None:
            words = self._words
            words[slot] = 0
            words[slot + 1], words[slot + 2], words[slot + 3] = now, self._held, 0
            words[slot] = call.number

    def is_late(self, call):
        """Time in which others held the loop is not the function's."""
        if call.begun is None or not call.seconds:
            return False
        others = self._held - call.held_at_begin - call.own_held
        return time.monotonic_ns() - call.begun - others >= call.seconds * 1e9

    # Functions.

    def run(self, call, function):
        """On the event loop."""
        token, mark = current.set(call), self.enter(call)
        try:
            return function()
        finally:
            self.leave(call, mark)
            current.reset(token)

    def run_in_thread(self, call, function, register=None):
        """On any other thread."""
        taken = None
        if register is None:
            with self._lock:
                taken = register = self._free.pop() if self._free else None
        if register is None:
            return function()
        token, mark = current.set(call), self.enter(call, register)
        try:
            return function()
        finally:
            self.leave(call, mark)
            current.reset(token)
            if taken is not None:
                with self._lock:
                    self._free.append(taken)

    async def watch(self, coroutine, call):
        """Awaits it; the board says when it executes."""
        return await self._steps(coroutine, call)

    @types.coroutine
    def _steps(self, coroutine, call):
        resume, what = coroutine.send, None
        while True:
            mark = self.enter(call)
            try:
                waits_for = resume(what)
            except StopIteration as end:
                return end.value
            finally:
                self.leave(call, mark)
            try:
                what = yield waits_for
                resume = coroutine.send
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:
                resume, what = coroutine.throw, error

    # Answers.

    def keep(self, frame):
        """False when there is no room: the frame has to be sent at once. On a board of one's own nobody looks for it."""
        if self._outbox_bytes == 0:
            return True
        used = self._words[1]
        if used + len(frame) > self._outbox_bytes:
            return False
        begin = self._outbox_begin + used
        self._memory[begin : begin + len(frame)] = frame
        self._words[1] = used + len(frame)
        return True

    def forget_answers(self):
        self._words[1] = 0

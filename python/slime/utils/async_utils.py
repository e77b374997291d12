"""Running coroutines from functions that are not: one event loop behind all of them."""

import asyncio
import threading
import weakref
from collections import deque

__all__ = ["AsyncPacer", "LoopSemaphore", "get_async_loop", "run"]


class AsyncLoopThread:
    """An event loop of its own thread, or one that somebody else runs (a plug-in host)."""

    def __init__(self, loop=None):
        self.loop = loop or asyncio.new_event_loop()
        self._thread = threading.current_thread()
        if loop is None:
            self._thread = threading.Thread(target=self._run_forever, name="slime coroutines", daemon=True)
            self._thread.start()

    def _run_forever(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, coroutine):
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("run() would wait for itself: this function is called by the event loop; await instead")
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()


async_loop = None
_making = threading.Lock()


def get_async_loop():
    global async_loop
    with _making:
        if async_loop is None:
            async_loop = AsyncLoopThread()
        return async_loop


def adopt_loop(loop):
    """Coroutines given to `run` go to `loop` from now on; called in the thread that runs it."""
    global async_loop
    async_loop = AsyncLoopThread(loop)


def run(coroutine):
    """Waits for `coroutine` and returns what it returns; not from inside the event loop."""
    return get_async_loop().run(coroutine)


class LoopSemaphore:
    """A semaphore for each event loop that uses it, made inside that loop."""

    def __init__(self, value):
        self._value = value
        self._of_loop = weakref.WeakKeyDictionary()

    def _own(self):
        loop = asyncio.get_running_loop()
        if loop not in self._of_loop:
            self._of_loop[loop] = asyncio.Semaphore(self._value)
        return self._of_loop[loop]

    def locked(self):
        return self._own().locked()

    async def acquire(self):
        return await self._own().acquire()

    def release(self):
        self._own().release()

    async def __aenter__(self):
        await self.acquire()

    async def __aexit__(self, kind, error, traceback):
        self.release()


class AsyncPacer:
    """Lets many coroutines begin in turns, so that the event loop looks at its sockets in between. It limits nothing else.
    For the coroutines of one event loop."""

    AT_ONCE = 64
    PAUSE_SECONDS = 0.001

    def __init__(self):
        self._waiting = deque()
        self._is_due = False

    async def wait(self):
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._begin_some, loop)
        await turn

    def _begin_some(self, loop):
        begun = 0
        while self._waiting and begun < self.AT_ONCE:
            turn = self._waiting.popleft()
            if not turn.done():  # its coroutine was cancelled
                turn.set_result(None)
                begun += 1
        self._is_due = bool(self._waiting)
        if self._is_due:
            loop.call_later(self.PAUSE_SECONDS, self._begin_some, loop)

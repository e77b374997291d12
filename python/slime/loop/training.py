"""`slime train` with a handle: the loop is the program's."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from slime.loop.child import Child
from slime.loop.errors import RunOver
from slime.loop.flags import flag_words
from slime.loop.metrics import read_metrics
from slime.loop.service import beside

__all__ = ["TrainingRun", "train"]

_LOOK_SECONDS = 0.2  # between two looks at the metrics


class TrainingRun:
    """A run of `slime train` under way. Made by :func:`train`. ``await run`` is ``run.wait()`` for an event loop.

    >>> run = slime.train(["--config", "run.yaml"])     # doctest: +SKIP
    >>> for row in run:                                 # doctest: +SKIP
    ...     print(row["step"], row["rollout/raw_reward"])
    """

    def __init__(self, child: Child) -> None:
        self._child = child
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._error: RunOver | None = None
        self._is_over = False
        self.run_dir = Path(child.wait_for_door()["run_dir"])
        _under_way.add(self)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One record a step, as in RUN_DIR/metrics.jsonl."""
        return read_metrics(self.run_dir)

    @property
    def is_running(self) -> bool:
        return not self._is_over and not self._child.has_ended()

    @property
    def status(self) -> str:
        """ "running", "finished" (also after ``stop()``), or "failed", and then ``wait()`` raises why."""
        if self.is_running:
            return "running"
        try:
            self.wait()
        except RunOver:
            return "failed"
        return "finished"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The metrics of each step from the first on, as they are written, until the run has ended. Raises RunOver where that was an
        error. A step that is trained again (the run went back to a checkpoint) is not given twice."""
        given = -1
        while True:
            is_last = not self.is_running
            for row in self.metrics:
                if row["step"] > given:
                    given = row["step"]
                    yield row
            if is_last:
                self.wait()
                return
            self._child.has_ended(within=_LOOK_SECONDS)

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        rows = iter(self)
        while (row := await beside(lambda: next(rows, None), "slime-metrics")) is not None:
            yield row

    def __await__(self) -> Generator[Any, None, TrainingRun]:
        return beside(self.wait, "slime-wait").__await__()

    async def astop(self) -> TrainingRun:
        """:meth:`stop` for an event loop."""
        return await beside(self.stop, "slime-stop")

    def wait(self, timeout: float | None = None) -> TrainingRun:
        """Until it has ended. Raises RunOver with the program's sentence where that was an error, TimeoutError when it goes on."""
        if not self._is_over and not self._child.has_ended(within=timeout):
            raise TimeoutError(f"{self!r} goes on")
        with self._lock:
            if not self._is_over:
                self._is_over = True
                _under_way.discard(self)
                self._error = self._child.end(statuses=(0, 130))
        if self._error is not None:
            raise self._error
        return self

    def stop(self) -> TrainingRun:
        """As Ctrl-C: what is sampled is abandoned, what was trained is saved. Returns when it has ended."""
        if os.getpid() == self._owner:
            self._child.interrupt()
        return self.wait()

    def __enter__(self) -> TrainingRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.wait() if kind is None else self.stop()

    def __repr__(self) -> str:
        return f"<slime train in {self.run_dir}{'' if self.is_running else ': over'}>"


_under_way: set[TrainingRun] = set()


@atexit.register
def _stop_all() -> None:
    for run in list(_under_way):
        try:
            run.stop()
        except Exception as error:
            print(f"slime: {error}")


def train(args: Any = None, *, output: TextIO | bool | None = None, program: str | None = None, **flags: Any) -> TrainingRun:
    """Starts `slime train` with these flags, in the forms of :func:`slime.start`, and returns a handle at once. The run ends with the
    script; ``wait()`` waits for its own end."""
    return TrainingRun(Child(["--built-in-loop", *flag_words(args, flags)], output, program, is_live=True))

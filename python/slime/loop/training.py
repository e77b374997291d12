"""`slime train` with a handle: the loop is the program's."""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from slime.loop.child import Child
from slime.loop.errors import RunOver
from slime.loop.flags import flag_words
from slime.loop.metrics import read_metrics

__all__ = ["TrainingRun", "train"]


class TrainingRun:
    """A run of `slime train` under way. Made by :func:`train`.

    >>> run = slime.train(["--config", "run.yaml"])     # doctest: +SKIP
    >>> run.metrics[-1]["rollout/raw_reward"]           # doctest: +SKIP
    >>> run.wait()                                      # doctest: +SKIP
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

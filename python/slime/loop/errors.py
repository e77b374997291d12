"""Errors of a run or a session. Their text is the program's own sentence, or says which sample a reward failed on."""

from __future__ import annotations

from typing import Any

__all__ = ["Error", "Refused", "RewardError", "RunOver"]


class Error(RuntimeError):
    """What the program said."""


class Refused(Error):
    """A verb out of order, or a field that cannot be: nothing was done, and the run goes on."""


class RunOver(Error):
    """The run or session has ended: by an error in a step, by ``close()``, or because the program died. What a run has trained
    before an error is saved; the same script, started again, goes on behind the last checkpoint."""


class RewardError(Error, ValueError):
    """A reward failed, or gave no number. The text has the sample, and file and line of the function; ``__cause__`` is what it
    raised, ``sample`` the sample (of a function over lists the first)."""

    def __init__(self, message: str, sample: Any = None) -> None:
        super().__init__(message)
        self.sample = sample

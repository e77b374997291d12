"""Errors of a run that a script drives. Their text is the program's own sentence."""

from __future__ import annotations

__all__ = ["Error", "Refused", "RunOver"]


class Error(RuntimeError):
    """What the program said."""


class Refused(Error):
    """A verb out of order, or a field that cannot be: nothing was done, and the run goes on."""


class RunOver(Error):
    """The run has ended: by an error in a step, by ``close()``, or because the program died. What was trained before an error
    is saved; the same script, started again, goes on behind the last checkpoint."""

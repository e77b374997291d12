"""The way from code in a plug-in host to the program that runs it; nothing outside a host.

`program` is set by slime.host. It has `ask(what, arguments)`, a coroutine, and `ask_and_wait(what, arguments)` for code
that cannot await; both return what the program answers, or raise ProgramError with its words. `takes_metrics`: whether it
answers the question `log`; beside a trainer it does not. `is_aborted`: whether generate functions are to end.
"""

__all__ = ["ProgramError", "is_aborted", "program", "takes_metrics"]

program = None
takes_metrics = False
is_aborted = False


class ProgramError(RuntimeError):
    """The program refused, or is gone."""

"""The way from code in a plug-in host to the program that runs it; nothing outside a host.

`program` is set by slime.host. It has `ask(what, arguments)`, a coroutine, and `ask_and_wait(what, arguments)` for code
that cannot await; both return what the program answers, or raise ProgramError with its words.
"""

__all__ = ["ProgramError", "program"]

program = None


class ProgramError(RuntimeError):
    """The program refused, or is gone."""

"""What went wrong in a user's function, in as many lines as help."""

import os
import traceback

__all__ = ["describe"]

_HERE = os.path.dirname(os.path.abspath(__file__))
_MAX_CHARACTERS = 8192


def _is_ours(frame):
    name = frame.filename
    return (
        name.startswith(_HERE)
        or f"{os.sep}asyncio{os.sep}" in name
        or f"{os.sep}concurrent{os.sep}" in name
        or f"{os.sep}importlib{os.sep}" in name
        or name.startswith("<frozen")
        or name.endswith(os.path.join("slime", "utils", "misc.py"))
        or name.endswith(f"{os.sep}threading.py")
    )


def _defined_at(function):
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def describe(error, returned_by=None):
    """{"type", "message", "place", "traceback"}: frames before the user's first one are left out. `returned_by`: the function
    of which the result is wrong, which is the place where no line of the user's raised."""
    report = traceback.TracebackException.from_exception(error)
    each = report
    while each is not None:
        first = next((i for i, frame in enumerate(each.stack) if not _is_ours(frame)), len(each.stack))
        each.stack = traceback.StackSummary.from_list(list(each.stack)[first:])
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    text = "".join(report.format())
    if len(text) > _MAX_CHARACTERS:
        text = text[: _MAX_CHARACTERS // 2] + "\n  ...\n" + text[-_MAX_CHARACTERS // 2 :]
    # What a line of the user's calls here may be where the exception comes from.
    last = next((frame for frame in reversed(report.stack) if not _is_ours(frame)), None)
    return {
        "type": type(error).__name__,
        "message": str(error)[:2000],
        "place": f"{last.filename}:{last.lineno}" if last else _defined_at(returned_by),
        "traceback": text,
    }

"""What the program says, shown where the script's own output goes. The last lines are kept, for the error that names them.

Lines, as in a file: the live display of a terminal redraws itself, and would erase what the script prints. It is for scripts that
leave the terminal to it."""

from __future__ import annotations

import collections
import os
import re
import sys
import threading
from typing import Any, TextIO

__all__ = ["Screen"]

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_KEPT_LINES = 30
_LONGEST_LINE = 4000


def _terminal_of(stream: Any) -> int | None:
    try:
        number = stream.fileno()
        return number if os.isatty(number) else None
    except (AttributeError, OSError, ValueError):
        return None


class Screen:
    """`output`: a text stream; None for sys.stderr, False for nowhere. `is_live`: the live display, where that is a terminal.
    `descriptor` is for the program's own output."""

    def __init__(self, output: TextIO | bool | None = None, is_live: bool = False) -> None:
        self._stream: Any = None if output is False else sys.stderr if output is None or output is True else output
        terminal = _terminal_of(self._stream) if is_live else None
        self._is_terminal = terminal is not None
        if terminal is not None:
            self._ours, self.descriptor = self._open_terminal(terminal)
        else:
            self._ours, self.descriptor = os.pipe()
        self._lines: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
        self._rest = ""
        self._thread = threading.Thread(target=self._copy, name="slime-screen", daemon=True)

    @staticmethod
    def _open_terminal(terminal: int) -> tuple[int, int]:
        import fcntl
        import termios

        ours, theirs = os.openpty()
        modes = termios.tcgetattr(theirs)
        modes[1] &= ~termios.OPOST
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        try:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, fcntl.ioctl(terminal, termios.TIOCGWINSZ, b"\0" * 8))
        except OSError:
            pass
        return ours, theirs

    def start(self) -> None:
        """When the program has its end of it."""
        os.close(self.descriptor)
        self._thread.start()

    def _copy(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # a terminal's other end is closed
                data = b""
            if not data:
                break
            self._show(data)
            self._keep(data.decode("utf-8", "replace"))
        os.close(self._ours)

    def _show(self, data: bytes) -> None:
        if self._stream is None:
            return
        try:
            if self._is_terminal:
                self._stream.flush()
                os.write(self._stream.fileno(), data)
            else:
                self._stream.write(data.decode("utf-8", "replace"))
                self._stream.flush()
        except (OSError, ValueError):  # closed: the run goes on
            self._stream = None

    def _keep(self, text: str) -> None:
        *lines, rest = (self._rest + _ESCAPES.sub("", text)).replace("\r", "\n").split("\n")
        self._lines.extend(line[:_LONGEST_LINE] for line in lines if line.strip())
        self._rest = rest[-_LONGEST_LINE:]

    def last_lines(self) -> list[str]:
        """When the program has ended."""
        self._thread.join(timeout=2)
        return [*self._lines, *([self._rest] if self._rest.strip() else [])]

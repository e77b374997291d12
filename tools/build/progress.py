#!/usr/bin/env python3
"""One line of progress from what ninja prints; everything goes to a log, warnings and errors are shown.

    cmake --build build/release 2>&1 | python3 tools/build/progress.py LOG

On a terminal the line is redrawn in place; elsewhere a line is printed each time another tenth is done.
"""

import re
import shutil
import sys
import time

STEP = re.compile(r"\[(\d+)/(\d+)\] (.*)")
# Lines that belong to what a compiler said before them: carets, notes, the source.
SPEAKS = re.compile(r"\b(warning|error): |\b(undefined reference|multiple definition)\b|^FAILED: |^ninja: |^CMake ")


def words(step: str) -> str:
    """"Building CXX object a/b/c.cpp.o" without folders and the kind of object."""
    name = step.split()[-1].rsplit("/", 1)[-1].removesuffix(".o") if step else ""
    return f"{'linking' if step.startswith('Linking') else 'compiling' if step.startswith(('Building', 'Compiling')) else 'making'} {name}"


def duration(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Line:
    def __init__(self, out, is_terminal: bool, begin: float):
        self.out, self.is_terminal, self.begin = out, is_terminal, begin
        self.tenth = 0
        self.drawn = False

    def show(self, done: int, total: int, step: str, now: float) -> None:
        left = f", {duration((now - self.begin) / done * (total - done))} left" if done >= 10 and done < total else ""
        text = f"    {done}/{total}{left}  {words(step)}"
        if self.is_terminal:
            self.out.write("\r\033[K" + text[: shutil.get_terminal_size().columns - 1])
            self.drawn = True
        elif done * 10 // total > self.tenth:
            self.tenth = done * 10 // total
            self.out.write(f"    {done}/{total}{left}\n")
        self.out.flush()

    def clear(self) -> None:
        if self.drawn:
            self.out.write("\r\033[K")
            self.drawn = False


def watch(lines, log, out, is_terminal: bool, clock=time.monotonic) -> None:
    line = Line(out, is_terminal, clock())
    speaks = False  # the compiler, about the step before
    for text in lines:
        log.write(text)
        if match := STEP.match(text):
            speaks = False
            line.show(int(match[1]), int(match[2]), match[3].strip(), clock())
            continue
        if not speaks and SPEAKS.search(text):
            speaks = True
        if speaks and not text.startswith("ninja: no work"):
            line.clear()
            out.write(text)
    line.clear()
    out.flush()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.stdin.reconfigure(errors="replace")
    with open(sys.argv[1], "w", buffering=1, encoding="utf-8", errors="replace") as log:
        watch(sys.stdin, log, sys.stdout, sys.stdout.isatty())


if __name__ == "__main__":
    main()

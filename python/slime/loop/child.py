"""The program as a child of the script: `slime steps` or `slime tinker`, and its door.

The child's standard input is a pipe of ours. It ends when that closes or when this process has ended, however that came.
It has a session of its own, so that Ctrl-C is the script's alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from slime.loop.errors import RunOver
from slime.loop.screen import Screen
from slime.program import find_program, program_environment

__all__ = ["Child"]

_LOOK_SECONDS = 0.01
_SHOWN_LINES = 8


class Child:
    """Started at once; `wait_for_door` returns when it answers verbs."""

    def __init__(
        self,
        words: Sequence[str],
        output: TextIO | bool | None = None,
        program: str | None = None,
        is_live: bool = False,
        command: str = "steps",
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="slime-"))  # mode 0700
        self._owner = os.getpid()
        self._screen = Screen(output, is_live)
        environment = dict(program_environment() or os.environ)
        # Functions of the user's run in python3: this interpreter's, unless a flag says otherwise.
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).resolve().parents[2]), environment.get("PYTHONPATH")]))
        environment["PATH"] = os.path.dirname(sys.executable) + os.pathsep + environment.get("PATH", "")
        command_line = [program or find_program(), command, "--door", str(self.folder), *words]
        try:
            self._process = subprocess.Popen(
                command_line,
                stdin=subprocess.PIPE,
                stdout=self._screen.descriptor,
                stderr=self._screen.descriptor,
                start_new_session=True,
                env=environment,
            )
        except OSError:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        finally:
            self._screen.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for_door(self) -> dict[str, Any]:
        """Address and token. Raises RunOver with the program's sentence when it ends before."""
        file = self.folder / "door.json"
        try:
            while True:
                if file.exists():
                    return json.loads(file.read_text())
                if self._process.poll() is not None:
                    raise self.death()
                time.sleep(_LOOK_SECONDS)
        except RunOver:
            raise
        except BaseException:  # Ctrl-C while it loads
            self.kill()
            raise

    def has_ended(self, within: float | None = 0.0) -> bool:
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            return False
        return True

    def interrupt(self) -> None:
        """As Ctrl-C does it: what is sampled is abandoned, what was trained is saved, and the run is over."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        if os.getpid() != self._owner:  # a copy of the script that it forked
            return
        if self._process.poll() is None:
            self._process.kill()
        self.clean_up()

    def clean_up(self) -> int:
        """When it has ended, or soon will. Its exit status."""
        status = self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._screen.last_lines()
        shutil.rmtree(self.folder, ignore_errors=True)
        return status

    def end(self, statuses: Sequence[int]) -> RunOver | None:
        """When it has ended: its death, where its exit status is none of these."""
        status = self._process.wait()
        if status not in statuses:
            return self.death()
        self.clean_up()
        return None

    def death(self) -> RunOver:
        """What it died of, in its own words. It has ended."""
        status = self._process.wait()
        try:
            sentence = json.loads((self.folder / "last_words.json").read_text())["error"]
        except (OSError, ValueError, KeyError):
            sentence = None
        lines = self._screen.last_lines()[-_SHOWN_LINES:]
        shutil.rmtree(self.folder, ignore_errors=True)
        if sentence:
            return RunOver(sentence)
        if status < 0:
            try:
                name = signal.Signals(-status).name
            except ValueError:
                name = str(-status)
            how = f"the program was ended by signal {name}"
        else:
            how = f"the program ended with status {status}"
        return RunOver(f"{how}; its last words:\n  " + "\n  ".join(lines) if lines else how)

"""The level of each environment: one higher when the model is right often enough at it. Kept in a file beside the run's
checkpoints, an entry for each step, so that a run that was killed goes on with the levels of the step that it goes on from.
"""

import json
import os
import re
from pathlib import Path

from environments import ENVIRONMENTS, HIGHEST_LEVEL

THRESHOLD = 0.75  # accuracy at the level
LEAST_ANSWERS = 64  # over which it counts
BEFORE_THE_FIRST_STEP = -1


class Levels:
    def __init__(self, run_dir):
        self.run_dir = Path(run_dir)
        self.file = self.run_dir / "levels.json"
        self.run = self._read(self.run_dir / "lock")  # which process owns the folder now, and since when
        self.now = {name: {"level": 1, "right": 0, "answers": 0} for name in ENVIRONMENTS}
        self.steps = {}
        self._load()

    @staticmethod
    def _read(path):
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def _load(self):
        known = self._read(self.file)
        if known is None:
            return
        steps = {int(step): levels for step, levels in known["steps"].items()}
        # Of the same process: this host was replaced, nothing is done again. Of an earlier one: what came behind its
        # last checkpoint is.
        last = max(steps) if known["run"] == self.run else self._step_of_checkpoint()
        self.steps = {step: levels for step, levels in steps.items() if step <= last}
        if last in self.steps:
            self.now = json.loads(json.dumps(self.steps[last]))

    def _step_of_checkpoint(self):
        latest = self.run_dir / "latest"
        found = re.search(r"(\d+)$", os.readlink(latest)) if latest.is_symlink() else None
        return int(found[1]) if found else BEFORE_THE_FIRST_STEP

    def level(self, environment):
        return self.now[environment]["level"]

    def count(self, environment, level, is_right):
        """Answers to problems of another level, made before it rose, say nothing about this one."""
        each = self.now[environment]
        if level == each["level"]:
            each["answers"] += 1
            each["right"] += int(is_right)

    def end_step(self, step):
        """Raises what is to be raised, and writes it down."""
        for each in self.now.values():
            if each["answers"] >= LEAST_ANSWERS:
                if each["right"] >= THRESHOLD * each["answers"] and each["level"] < HIGHEST_LEVEL:
                    each["level"] += 1
                each["right"] = each["answers"] = 0
        self.steps[step] = json.loads(json.dumps(self.now))
        partial = self.file.with_suffix(".partial")
        partial.write_text(json.dumps({"run": self.run, "steps": self.steps}), encoding="utf-8")
        os.replace(partial, self.file)

"""The loop in Python: `slime.start` gives a run whose steps this script decides (docs/python.md).

Nothing but the standard library is needed. The run itself is a child process; no tensor comes here.
"""

from slime.loop.calls import Call, Evaluation, Rollout, Sample, Saved, Training, Update
from slime.loop.errors import Error, Refused, RunOver
from slime.loop.recipes import Step, grpo
from slime.loop.run import Config, Run, astart, start
from slime.loop.training import TrainingRun, train

__all__ = [
    "Call",
    "Config",
    "Error",
    "Evaluation",
    "Refused",
    "Rollout",
    "Run",
    "RunOver",
    "Sample",
    "Saved",
    "Step",
    "Training",
    "TrainingRun",
    "Update",
    "astart",
    "grpo",
    "start",
    "train",
]

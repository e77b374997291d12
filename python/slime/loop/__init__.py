"""Runs and models that this script drives: `slime.start` and its like (docs/python.md).

Nothing but the standard library is needed. What is driven is a child process; no tensor comes here.
"""

from slime.loop.calls import Call, Evaluation, Rollout, Sample, Saved, Training, Update
from slime.loop.errors import Error, Refused, RewardError, RunOver
from slime.loop.groups import Group, advantages_of
from slime.loop.grpo import Grpo, GrpoStep
from slime.loop.passes import Pass
from slime.loop.recipes import Step, agrpo, grpo
from slime.loop.run import Config, Run, astart, start
from slime.loop.service import Pending
from slime.loop.session import Sampler, Session
from slime.loop.training import TrainingRun, train

__all__ = [
    "Call",
    "Config",
    "Error",
    "Evaluation",
    "Group",
    "Grpo",
    "GrpoStep",
    "Pass",
    "Pending",
    "Refused",
    "RewardError",
    "Rollout",
    "Run",
    "RunOver",
    "Sample",
    "Sampler",
    "Saved",
    "Session",
    "Step",
    "Training",
    "TrainingRun",
    "Update",
    "advantages_of",
    "agrpo",
    "astart",
    "grpo",
    "start",
    "train",
]

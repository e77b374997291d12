"""Names that users' functions import: samples, generation, rewards, filters, data sources, the agent kit.

The program (`slime train`) runs such functions in `python3 -m slime.host`. Nothing here needs a package beyond the
standard library; torch and transformers are imported where a tensor or a tokenizer is asked for.
"""

from typing import TYPE_CHECKING

from slime import absent

if TYPE_CHECKING:
    from slime.loop import *  # noqa: F403 - what __getattr__ gives

__version__ = "0.1.0"

absent.install()

_OF_THE_LOOP = (
    "Error", "Group", "Grpo", "GrpoStep", "Pass", "Pending", "Refused", "RewardError", "Rollout", "Run", "RunOver", "Sample", "Sampler",
    "Session", "TrainingRun", "advantages_of", "agrpo", "astart", "grpo", "start", "train",
)  # fmt: skip


def __getattr__(name):
    """`slime.start` and its like, loaded when they are asked for: hosts of users' functions do not."""
    if name in _OF_THE_LOOP:
        import slime.loop

        return getattr(slime.loop, name)
    raise AttributeError(f"module 'slime' has no attribute '{name}'")


def __dir__():
    return sorted([*globals(), *_OF_THE_LOOP])

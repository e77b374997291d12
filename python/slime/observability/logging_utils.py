"""Numbers of users' functions in the run's own log: metrics.jsonl, TensorBoard, the trackers.

    def log_rollout(rollout_id, args, samples, rollout_extra_metrics, rollout_time):
        log(args, {"rollout/step": rollout_id, "mine/longest": max(s.response_length for s in samples)}, "rollout/step")
        return False
"""

import logging

from slime import channel

__all__ = ["configure_logger", "finish_tracking", "init_tracking", "log"]

logger = logging.getLogger(__name__)


def log(args, metrics, step_key: str = None) -> None:
    """Writes the numbers beside the metrics of the step that is under way. `step_key` names the one among them that is the
    step's number, which the program knows. Outside a run, and beside a trainer, whose functions return their metrics, they are printed."""
    numbers = {name: _number(value) for name, value in metrics.items() if name != step_key}
    if channel.program is None or not channel.takes_metrics:
        logger.warning("nobody takes metrics here: %s", numbers)
        return
    channel.program.ask_and_wait("log", {"metrics": numbers})


def _number(value):
    """Of an array or a tensor of one number that number."""
    return value.item() if hasattr(value, "item") else value


def configure_logger(prefix: str = "") -> None:
    """Messages from level INFO on are printed, with their time and place."""
    form = f"[%(asctime)s{prefix}] %(filename)s:%(lineno)d - %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, datefmt="%Y-%m-%d %H:%M:%S")


def init_tracking(args, primary: bool = True, **kwargs) -> None:
    """Nothing: the program has its trackers (--use-tensorboard, --use-wandb)."""


def finish_tracking(args) -> None:
    """Nothing, as init_tracking()."""

"""Metrics of samples under the name that logging functions import them by; the original's rollout manager is not here."""

from slime.observability.metric_utils import compute_pass_rate, compute_rollout_step, compute_statistics, dict_add_prefix
from slime.observability.rollout_metrics import compute_metrics_from_samples, compute_perf_metrics_from_samples

__all__ = [
    "compute_metrics_from_samples",
    "compute_pass_rate",
    "compute_perf_metrics_from_samples",
    "compute_rollout_step",
    "compute_statistics",
    "dict_add_prefix",
]


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(f"slime.ray.rollout.{name} of THUDM/slime is not here: the program makes rollouts; docs/plugins.md has its hooks")

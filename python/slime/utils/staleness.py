"""The age of samples, in updates of the weights: how far the oldest token's version is behind the one that is served."""

__all__ = ["compute_staleness_metrics", "fully_async_metrics_enabled", "oldest_version", "sample_staleness"]


def _number(version):
    """The version as a number; None for a name."""
    text = str(version)
    return int(text) if text.isascii() and text.lstrip("-").isdigit() and text.rfind("-") <= 0 else None


def oldest_version(samples):
    """The smallest numbered version of any token; None without one."""
    versions = (_number(version) for sample in samples for version in sample.weight_versions or ())
    return min((version for version in versions if version is not None), default=None)


def fully_async_metrics_enabled(args) -> bool:
    """As the original decides: by the name of the rollout function."""
    return "fully_async" in (getattr(args, "rollout_function_path", None) or "")


def sample_staleness(sample, current_weight_version: int):
    """None where it is not known: a version without a number, none at all, or one that nobody serves yet."""
    versions = [_number(version) for version in sample.weight_versions or ()]
    if not versions or None in versions or max(versions) > current_weight_version:
        return None
    return current_weight_version - min(versions)


def compute_staleness_metrics(samples, current_weight_version) -> dict:
    """staleness/unknown_count, mean, max and multi_version_frac: {} when no version is known."""
    if current_weight_version is None:
        return {}
    ages = [sample_staleness(sample, current_weight_version) for sample in samples]
    known = [age for age in ages if age is not None]
    metrics = {"staleness/unknown_count": len(ages) - len(known)}
    if known:
        metrics.update({"staleness/mean": sum(known) / len(known), "staleness/max": max(known)})
    if ages:
        mixed = sum(len(set(sample.weight_versions or ())) > 1 for sample in samples)
        metrics["staleness/multi_version_frac"] = mixed / len(ages)
    return metrics

"""Which publications of weights drop the engines' caches (`--flush-cache-interval`)."""

__all__ = ["should_flush_cache"]


def should_flush_cache(interval: int, weight_version: int, initial_weight_version: int = 0) -> bool:
    """The first one of a run always does; then every `interval`-th, counted from version 1; none for 0 and below."""
    is_first = weight_version == initial_weight_version + 1
    return is_first or (interval > 0 and (weight_version - 1) % interval == 0)

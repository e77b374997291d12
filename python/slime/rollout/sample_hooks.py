"""Hooks that see each sample between its generation and its reward (`--rollout-sample-hook-path`)."""

import inspect
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

from slime.utils.misc import load_function
from slime.utils.types import Sample

__all__ = ["apply_rollout_sample_hooks", "rollout_context", "set_current_rollout_id"]

_current_rollout_id = None
_of_this_task = ContextVar("slime_rollout_id", default=None)


def set_current_rollout_id(rollout_id):
    global _current_rollout_id
    _current_rollout_id = rollout_id


@contextmanager
def rollout_context(rollout_id):
    """Hooks called inside, in this task and those that it starts, are of this rollout."""
    token = _of_this_task.set(rollout_id)
    try:
        yield
    finally:
        _of_this_task.reset(token)


def _rollout_id():
    own = _of_this_task.get()
    return _current_rollout_id if own is None else own


@lru_cache(maxsize=None)
def accepted_names(function):
    """The keywords that `function` takes; None when it takes any."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    return frozenset(parameters)


async def apply_hook(hook, path, args, sample, kwargs):
    names = accepted_names(hook)
    result = hook(args, sample, **{name: value for name, value in kwargs.items() if names is None or name in names})
    if inspect.isawaitable(result):
        result = await result
    if result is None:
        return sample
    if not isinstance(result, Sample):
        raise TypeError(f"{path} returned {type(result).__name__}; a sample hook returns a Sample or None")
    return result


async def apply_rollout_sample_hooks(args, value, **kwargs):
    """Each hook in turn on each sample of `value`, a sample or lists of them."""
    paths = getattr(args, "rollout_sample_hook_path", None) or []
    if not paths:
        return value
    kwargs.setdefault("rollout_id", _rollout_id())
    if isinstance(value, list):
        return [await apply_rollout_sample_hooks(args, item, **kwargs) for item in value]
    if not isinstance(value, Sample):
        raise TypeError(f"sample hooks take a Sample or lists of them, not {type(value).__name__}")
    for path in paths:
        value = await apply_hook(load_function(path), path, args, value, kwargs)
    return value

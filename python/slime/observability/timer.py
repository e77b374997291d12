"""Seconds of named stretches of code, summed."""

import functools
import inspect
import time
from contextlib import contextmanager

from slime.utils.misc import SingletonMeta

__all__ = ["Timer", "inverse_timer", "timer"]


class Timer(metaclass=SingletonMeta):
    """One for a process."""

    def __init__(self):
        self.timers, self.start_time = {}, {}

    def start(self, name):
        if name in self.start_time:
            raise RuntimeError(f"timer {name} runs already")
        self.start_time[name] = time.time()

    def end(self, name):
        if name not in self.start_time:
            raise RuntimeError(f"timer {name} was not started")
        seconds = time.time() - self.start_time.pop(name)
        self.add(name, seconds)
        return seconds

    def add(self, name, seconds):
        self.timers[name] = self.timers.get(name, 0.0) + seconds

    def log_dict(self):
        return dict(self.timers)

    def reset(self, name=None):
        if name is None:
            self.timers.clear()
        else:
            self.timers.pop(name, None)

    @contextmanager
    def context(self, name):
        self.start(name)
        try:
            yield
        finally:
            self.end(name)


def timer(name_or_function):
    """A decorator, with or without a name, or a context: `with timer("load"):`."""
    if isinstance(name_or_function, str):
        return Timer().context(name_or_function)
    function = name_or_function

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def timed(*args, **kwargs):
            with Timer().context(function.__name__):
                return await function(*args, **kwargs)

    else:

        @functools.wraps(function)
        def timed(*args, **kwargs):
            with Timer().context(function.__name__):
                return function(*args, **kwargs)

    return timed


@contextmanager
def inverse_timer(name):
    """Stops a running timer for the time of a block."""
    Timer().end(name)
    try:
        yield
    finally:
        Timer().start(name)

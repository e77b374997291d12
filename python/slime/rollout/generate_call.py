"""One call of a generate function, and how an abort ends it.

A function whose attribute `abort_mode` is "request" is cancelled, and its sample keeps what it has by then. All others
learn of an abort from their engine, whose answers end.
"""

import asyncio

from slime.utils.types import Sample

__all__ = ["await_generate", "cancel_requests", "is_cancelled_by_abort"]


def is_cancelled_by_abort(function):
    return getattr(function, "abort_mode", None) == "request"


async def await_generate(state, function, sample, call):
    """What `call`, a coroutine of `function` for `sample`, returns; the sample, aborted, when cancel_requests() came before."""
    if not is_cancelled_by_abort(function):
        # A state that tests or users put in the place of GenerateState may lack what is counted here.
        state.active_server_generations = getattr(state, "active_server_generations", 0) + 1
        try:
            return await call
        finally:
            state.active_server_generations -= 1
    task = asyncio.ensure_future(call)
    if not hasattr(state, "cancellable_tasks"):
        state.cancellable_tasks = set()
    state.cancellable_tasks.add(task)
    try:
        return await task
    except asyncio.CancelledError:
        if task in state.cancellable_tasks:  # cancelled by somebody else
            raise
        sample.status = Sample.Status.ABORTED
        return sample
    finally:
        state.cancellable_tasks.discard(task)


def cancel_requests(state):
    """Ends all calls of functions that are cancelled by an abort."""
    while state.cancellable_tasks:
        state.cancellable_tasks.pop().cancel()

"""A rollout function whose generation never stops: groups in flight outlive the step that began them.

`--rollout-function-path slime.rollout.fully_async_rollout.generate_rollout_fully_async`. The program does the same
natively with `slime train-async`; this is for code that builds on the worker.
"""

import asyncio
import atexit
import logging
import queue
import threading
import time

from slime.rollout.base_types import RolloutFnTrainOutput
from slime.rollout.filter_hub.base_types import (
    MetricGatherer,
    call_dynamic_filter,
    should_drop_dynamic_filter_output,
)
from slime.rollout.sglang_rollout import GenerateState, eval_rollout, generate_and_rm_group
from slime.utils.http_utils import get_rollout_num_engines
from slime.utils.misc import load_function
from slime.utils.types import Sample

__all__ = ["AsyncRolloutWorker", "generate_rollout_fully_async"]

logger = logging.getLogger(__name__)

_global_worker = None
_worker_lock = threading.Lock()


def _statuses(group):
    for member in group:
        for sample in member if isinstance(member, list) else (member,):
            yield sample.status


class AsyncRolloutWorker:
    """A thread with an event loop that keeps `concurrency` groups of `data_buffer` in flight, and as many finished ones
    at most. Aborted groups go back to the buffer."""

    def __init__(self, args, data_buffer, concurrency=10):
        self.args = args
        self.data_buffer = data_buffer
        self.concurrency = concurrency
        self.running = True
        self.output_queue = queue.Queue()
        self.poll_interval = 0.05
        self.worker_thread = None
        self.failure = None
        self.loop = None
        self.state = GenerateState(args)

    def start(self):
        if self.worker_thread is None or not self.worker_thread.is_alive():
            self.worker_thread = threading.Thread(target=self._work, name="fully-async rollout", daemon=True)
            self.worker_thread.start()

    def stop(self):
        self.running = False
        if self.worker_thread is not None:
            self.worker_thread.join(timeout=5)

    def queue_size(self):
        return self.output_queue.qsize()

    def get_completed_groups(self, limit=None):
        """(ordinal, group) of finished groups, oldest first; `limit` of them at most."""
        groups = []
        while limit is None or len(groups) < limit:
            try:
                groups.append(self.output_queue.get_nowait())
            except queue.Empty:
                break
        return groups

    def _work(self):
        try:
            asyncio.run(self._keep_in_flight())
        except BaseException as error:
            self.failure = error
            logger.exception("generation stopped")

    def call(self, coroutine):
        """Runs it on the worker's loop, beside the groups in flight; its result."""
        while self.loop is None:
            if self.failure is not None or not self.worker_thread.is_alive():
                coroutine.close()
                raise RuntimeError("generation stopped") from self.failure
            time.sleep(0.01)
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def _keep_in_flight(self):
        self.loop = asyncio.get_running_loop()
        in_flight, ordinal = {}, 0
        while self.running:
            while len(in_flight) < self.concurrency and self.queue_size() < self.concurrency:
                groups = await asyncio.get_running_loop().run_in_executor(None, self.data_buffer.get_samples, 1)
                if not groups:
                    break
                for group in groups:
                    coroutine = generate_and_rm_group(
                        self.args, group, self.state.sampling_params.copy(), evaluation=False
                    )
                    in_flight[asyncio.create_task(coroutine)] = (ordinal, group)
                    ordinal += 1
            if not in_flight:
                await asyncio.sleep(self.poll_interval)
                continue
            done, _ = await asyncio.wait(
                in_flight, timeout=self.poll_interval, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                await self._finish(task, *in_flight.pop(task))
        for task in in_flight:
            task.cancel()
        await asyncio.gather(*in_flight, return_exceptions=True)

    async def _finish(self, task, ordinal, group):
        error = task.exception()
        if error is not None:
            logger.error("group %d failed and is left out", ordinal, exc_info=error)
            return
        result = task.result()
        if Sample.Status.ABORTED in _statuses(result):
            await asyncio.get_running_loop().run_in_executor(None, self.data_buffer.add_samples, [group])
        else:
            self.output_queue.put((ordinal, result))


def _get_global_worker(args, data_buffer):
    global _global_worker
    with _worker_lock:
        if _global_worker is None or not _global_worker.worker_thread.is_alive():
            engines = max(1, get_rollout_num_engines(args))
            _global_worker = AsyncRolloutWorker(args, data_buffer, args.sglang_server_concurrency * engines)
            _global_worker.start()
        return _global_worker


def _stop_global_worker():
    global _global_worker
    with _worker_lock:
        if _global_worker is not None:
            _global_worker.stop()
            _global_worker = None


atexit.register(_stop_global_worker)


def generate_rollout_fully_async(args, rollout_id, data_buffer, evaluation=False):
    """Takes rollout_batch_size finished groups that the filter keeps; the rest waits for the next step. Evaluation runs
    beside the groups in flight."""
    worker = _get_global_worker(args, data_buffer)
    if evaluation:
        return worker.call(eval_rollout(args, rollout_id))[0]
    dynamic_filter = _function_of(args, "dynamic_sampling_filter_path")
    sample_filter = _function_of(args, "rollout_sample_filter_path")
    groups, dropped, gathered = [], 0, MetricGatherer()
    while len(groups) < args.rollout_batch_size:
        taken = worker.get_completed_groups(args.rollout_batch_size - len(groups))
        for _, group in taken:
            verdict = call_dynamic_filter(dynamic_filter, args, group)
            # Others are always in flight, so a group is never kept for want of more.
            if should_drop_dynamic_filter_output(verdict, remaining_batch_size=1, target_data_size=0):
                gathered.on_dynamic_filter_drop(verdict.reason)
                dropped += 1
            else:
                groups.append(group)
        if worker.failure is not None and not taken:
            raise RuntimeError("generation stopped") from worker.failure
        if not taken:
            time.sleep(0.02)
    groups.sort(key=_order)
    if sample_filter is not None:
        sample_filter(args, groups)
    if dynamic_filter is None and sample_filter is None:
        return groups
    metrics = gathered.collect()
    if dynamic_filter is not None:
        metrics["rollout/dynamic_filter/dropped_groups"] = dropped
        metrics["rollout/dynamic_filter/dropped_ratio"] = dropped / (len(groups) + dropped)
    return RolloutFnTrainOutput(samples=groups, metrics=metrics)


def _function_of(args, name):
    path = getattr(args, name, None)
    return None if path is None else load_function(path)


def _order(group):
    first = group[0][0] if isinstance(group[0], list) else group[0]
    return first.index or 0

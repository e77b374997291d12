"""What the function of --rollout-buffer-url does while the buffer is away."""

import asyncio
from types import SimpleNamespace

import pytest
from slime.rollout import buffer_rollout


def reader(monkeypatch, retries, refusals):
    """One whose buffer refuses so many connections and then begins to draw."""
    args = SimpleNamespace(
        rollout_buffer_url="http://127.0.0.1:1",
        fetch_trajectory_retry_times=retries,
        rollout_task_type="my-task",
        rollout_batch_size=1,
        n_samples_per_prompt=1,
        run_dir=None,
        save=None,
    )
    made, calls = buffer_rollout._Reader(args), []
    monkeypatch.setattr(made, "payload", lambda skipped: {})

    def start(payload):
        calls.append(payload)
        if len(calls) <= refusals:
            raise ConnectionRefusedError(111, "Connection refused")

    async def at_once(seconds):
        pass

    monkeypatch.setattr(made.buffer, "start", start)
    monkeypatch.setattr(made.buffer, "status", lambda: {"tasks": {}})
    monkeypatch.setattr(buffer_rollout.asyncio, "sleep", at_once)
    return made, calls


def test_a_buffer_that_comes_late_has_started_one_generator(monkeypatch):
    made, calls = reader(monkeypatch, retries=-1, refusals=3 * buffer_rollout.MOST_STARTS)
    asyncio.run(made.in_thread(made.start, None))
    assert made.num_starts == 1 and len(calls) == 3 * buffer_rollout.MOST_STARTS + 1


def test_a_buffer_that_does_not_come_is_named(monkeypatch):
    made, calls = reader(monkeypatch, retries=2, refusals=100)
    with pytest.raises(ConnectionError, match="rollout buffer at http://127.0.0.1:1 does not answer .*3 calls in a row"):
        asyncio.run(made.in_thread(made.start, None))
    assert made.num_starts == 0 and len(calls) == 3

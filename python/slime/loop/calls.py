"""Verbs under way, and what they give: each can be awaited, waited for, or simply used."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from slime.loop.errors import Error, Refused, RunOver

if TYPE_CHECKING:
    from slime.loop.run import Run

__all__ = ["Call", "Evaluation", "Rollout", "Sample", "Saved", "Training", "Update"]

_SelfCall = TypeVar("_SelfCall", bound="Call")
_LONGEST_REQUEST = 60.0  # seconds; the program answers "try again" after 40


class Call:
    """A verb that was asked for. ``await call`` and ``call.result()`` return it when it is done; so does any property."""

    verb = ""

    def __init__(self, run: Run, arguments: dict[str, Any]) -> None:
        self._run = run
        self._arguments = arguments
        self._answer: dict[str, Any] | None = None
        self._error: Error | None = None
        self._lock = threading.Lock()
        self._number = run._ask(self.verb, arguments)

    def done(self) -> bool:
        """Whether its answer is here. A call that nobody waits for has none."""
        return self._answer is not None or self._error is not None

    def result(self: _SelfCall, timeout: float | None = None) -> _SelfCall:
        """Waits until it is done. Raises Refused, RunOver, or TimeoutError; it may be waited for again then."""
        self._wait(None if timeout is None else time.monotonic() + timeout)
        return self

    def __await__(self: _SelfCall) -> Generator[Any, None, _SelfCall]:
        if not self.done():
            yield from self._wait_beside().__await__()
        self._wait(None)
        return self

    def _wait(self, until: float | None) -> None:
        with self._lock:
            while not self.done():
                seconds = _LONGEST_REQUEST if until is None else min(_LONGEST_REQUEST, until - time.monotonic())
                if seconds <= 0:
                    raise TimeoutError(f"{self!r}: not done in time")
                self._retrieve(seconds, is_limited=until is not None)
        if self._error is not None:
            raise self._error

    def _retrieve(self, seconds: float, is_limited: bool) -> None:
        try:
            answer = self._run._request("POST", "retrieve_future", {"request_id": self._number}, seconds)
        except TimeoutError:
            if is_limited:
                return
            raise
        except Error as error:
            self._error = error
            self._run._forget(self)
            return
        if answer.get("type") == "try_again":
            return
        if "error" in answer:
            if answer.get("run_is_over", True):
                self._error = self._run._over = RunOver(answer["error"])
            else:
                self._error = Refused(answer["error"])
        else:
            self._answer = answer
        self._run._forget(self)

    async def _wait_beside(self) -> None:
        """In a thread that nobody joins, so that Ctrl-C is not held up by a step under way."""
        loop = asyncio.get_running_loop()
        is_done: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            if not is_done.done():
                is_done.set_result(None)

        def wait() -> None:
            try:
                self._wait(None)
            except BaseException:
                pass  # raised again where it is awaited
            try:
                loop.call_soon_threadsafe(tell)
            except RuntimeError:
                pass  # the loop is closed

        threading.Thread(target=wait, name=f"slime-{self.verb}", daemon=True).start()
        await is_done

    def _value(self, name: str) -> Any:
        self.result()
        assert self._answer is not None
        return self._answer[name]

    @property
    def step(self) -> int:
        """The rollout step that it is about."""
        return self._value("step")

    def __repr__(self) -> str:
        step = self._arguments.get("step")
        name = f"{self.verb}({'' if step is None else step})"
        if self._error is not None:
            return f"<{name}: {self._error}>"
        return f"<{name}>" if self.done() else f"<{name}: under way; await it, or call result()>"


class Sample(dict):
    """A sample of a rollout. Its fields are attributes too: prompt, response, label, reward, metadata, status, response_length,
    trained_tokens, weight_version; with ``tokens=True`` also tokens, prompt_length, log_probs, loss_mask."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a sample has no {name}; it has {', '.join(self)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class Rollout(Call):
    """The groups of one step: prompts, responses, rewards. They stay in the program; ``samples()`` reads them."""

    verb = "generate"

    @property
    def reward(self) -> float | None:
        """The mean; None where nothing was scored."""
        return self._value("reward")

    @property
    def num_groups(self) -> int:
        return self._value("num_groups")

    @property
    def num_samples(self) -> int:
        return self._value("num_samples")

    @property
    def seconds(self) -> float:
        """How long it was waited for."""
        return self._value("seconds")

    @property
    def metrics(self) -> dict[str, float]:
        """What was counted while it was generated: groups that filters dropped, the age of its weights."""
        return self._value("metrics")

    def samples(self, start: int = 0, stop: int | None = None, *, tokens: bool = False) -> Iterator[Sample]:
        """The samples from `start` up to `stop`, read page by page as they are asked for. Those of the last two rollouts are
        there; older ones are in the run's folder.

        >>> best = max(rollout.samples(), key=lambda sample: sample.reward)   # doctest: +SKIP
        """
        step, at, end = self.step, start, self.num_samples if stop is None else min(stop, self.num_samples)
        while at < end:
            query = f"samples?step={step}&offset={at}&limit={min(64, end - at)}&tokens={int(tokens)}"
            page = self._run._request("GET", query)["samples"]
            if not page:
                return
            yield from (Sample(each) for each in page)
            at += len(page)

    def __len__(self) -> int:
        return self.num_samples

    def drop(self) -> Call:
        """Ends the step without training on it."""
        return self._run.drop(self)


class Training(Call):
    """One rollout trained."""

    verb = "train"

    @property
    def metrics(self) -> dict[str, float]:
        """As in metrics.jsonl: train/loss, train/grad_norm, rollout/advantages, perf/train_time, ..."""
        return self._value("metrics")

    @property
    def updates(self) -> list[dict[str, Any]]:
        """Metrics of each optimizer step."""
        return self._value("updates")

    @property
    def loss(self) -> float:
        return self.metrics["train/loss"]

    @property
    def grad_norm(self) -> float:
        return self.metrics["train/grad_norm"]


class Update(Call):
    """New weights in the engines."""

    verb = "update_weights"

    @property
    def version(self) -> int:
        return self._value("version")


class Evaluation(Call):
    """All evaluation sets with the weights that the engines have. Beside training its metrics come later, in `run.metrics`."""

    verb = "evaluate"

    @property
    def metrics(self) -> dict[str, float]:
        return {name: value for name, value in self._value("metrics").items() if name not in ("step", "time")}


class Saved(Call):
    """A checkpoint."""

    verb = "save"

    @property
    def path(self) -> Path:
        """The folder of this checkpoint, also when newer ones are there (as many as --keep-checkpoints says)."""
        return Path(self._value("path"))


class Dropped(Call):
    """A rollout that is not trained."""

    verb = "drop"


class Settled(Call):
    """The row of the last step is in metrics.jsonl."""

    verb = "settle"


class Closed(Call):
    """The end of the run."""

    verb = "close"

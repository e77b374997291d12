"""GRPO over the verbs of a session: to use, to read and to copy."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slime.loop.groups import Group, flat, read_rows
from slime.loop.service import beside

if TYPE_CHECKING:
    from slime.loop.passes import Pass, Update
    from slime.loop.session import Session

__all__ = ["Grpo", "GrpoStep"]


class GrpoStep:
    """One step: what was sampled, what it scored, what it changed."""

    def __init__(self, session: Session, groups: list[Group], made: Pass, update: Update, seconds: float) -> None:
        self.session, self.groups, self.seconds = session, groups, seconds
        samples = flat(groups)
        self.index = update.index - 1
        #: The mean over all samples.
        self.reward: float = sum(each.reward for each in samples) / len(samples)
        self.loss: float = made.loss
        self.grad_norm: float = update.grad_norm
        self.lr: float = update.lr
        self.metrics = {**{name.split(":")[0]: value / len(samples) for name, value in made.metrics.items()}, "grad_norm": update.grad_norm}
        #: Of the KL loss, where the flags ask for one (--use-kl-loss).
        self.kl: float | None = self.metrics.get("kl_loss")
        self.response_length: float = sum(each.response_length for each in samples) / len(samples)
        self.tokens_per_second: float = sum(each.response_length for each in samples) / max(seconds, 1e-9)

    @property
    def samples(self) -> list[Any]:
        return flat(self.groups)

    def save(self, path: str | Path, **options: Any) -> Path:
        return self.session.save(path, **options)

    def __repr__(self) -> str:
        return f"<step {self.index}: reward {self.reward:.4g}, loss {self.loss:.4g}>"


class Grpo(Iterator[GrpoStep]):
    """The steps of :meth:`Session.grpo`, one for each ``next()``.

    `prompts`: a .jsonl or .json file, texts, lists of messages, or rows with "prompt", "label" and more. Each is taken in turn, again
    from the first behind the last.
    `reward`: a function of the script in any form of slime.loop.rewards.
    `groups`, `samples`: prompts of a step, and samples of each. `steps`: how many; None: without end.
    `lr`: default --lr; ``steps.lr = ...`` changes it between two steps.
    `max_tokens`, `temperature`: of the samples. `loss`, `advantages`: of ``forward_backward`` and ``advantages``.

    >>> steps = s.grpo(["2+3=", "4+4="], lambda sample: sample.response.startswith("5"), groups=2)    # doctest: +SKIP
    >>> for step in steps:                                                                            # doctest: +SKIP
    ...     print(step.index, step.reward)
    ...     steps.lr *= 0.99
    """

    def __init__(
        self,
        session: Session,
        prompts: Any,
        reward: Callable[..., Any],
        *,
        groups: int = 32,
        samples: int = 8,
        steps: int | None = 100,
        lr: float | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        loss: str | Callable[..., Any] = "policy",
        advantages: str = "grpo",
    ) -> None:
        self.session, self.reward, self.groups, self.samples = session, reward, groups, samples
        self.lr, self.max_tokens, self.temperature = lr, max_tokens, temperature
        self.loss, self.advantages = loss, advantages
        self.left = steps
        self._rows = read_rows(prompts)

    def __iter__(self) -> Grpo:
        return self

    def __next__(self) -> GrpoStep:
        if self.left is not None and self.left <= 0:
            raise StopIteration
        step = self._step()
        if self.left is not None:
            self.left -= 1
        return step

    def _step(self) -> GrpoStep:
        begin, session = time.perf_counter(), self.session
        first = session._cursor
        rows = [self._rows[(first + i) % len(self._rows)] for i in range(self.groups)]
        made = session.generate(rows, n=self.samples, max_tokens=self.max_tokens, temperature=self.temperature)
        session.score(made, self.reward)
        session.advantages(made, self.advantages)
        session._cursor = first + self.groups
        trained = [sample for sample in flat(made) if sample.response_length > 0]
        # Both are asked for before either is waited for: Ctrl-C does not come between them.
        passed = session.forward_backward(trained, self.loss, wait=False)
        update = session.step(self.lr, wait=False, after=passed)
        return GrpoStep(session, made, passed.result(), update.result(), time.perf_counter() - begin)

    def __aiter__(self) -> AsyncIterator[GrpoStep]:
        return self  # type: ignore[return-value]

    async def __anext__(self) -> GrpoStep:
        if self.left is not None and self.left <= 0:
            raise StopAsyncIteration
        return await beside(self.__next__, "slime-grpo")

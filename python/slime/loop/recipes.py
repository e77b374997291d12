"""Reinforcement learning in ten lines: prompts and a reward of the script's own, an iterator of steps."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from slime.loop.calls import Rollout, Training
from slime.loop.errors import RunOver
from slime.loop.flags import DEFAULTS_OF_SCRIPTS, flag_words
from slime.loop.groups import read_rows
from slime.loop.reward_socket import RewardSocket
from slime.loop.run import Run, start
from slime.loop.service import beside
from slime.program import find_program, program_environment

__all__ = ["Step", "agrpo", "grpo"]


class Step:
    """One step of :func:`grpo`."""

    def __init__(self, run: Run, rollout: Rollout, training: Training) -> None:
        self.run, self.rollout, self.training = run, rollout, training
        self.index = rollout.step
        self.reward = rollout.reward
        self.metrics = {**rollout.metrics, **training.metrics}
        self.loss = training.loss
        self.kl = self.metrics.get("train/kl_loss")

    def save(self) -> Path:
        """A checkpoint behind this step."""
        return self.run.save(self.index, wait=True).path

    def __repr__(self) -> str:
        reward = "none" if self.reward is None else f"{self.reward:.4g}"
        return f"<step {self.index}: reward {reward}, loss {self.loss:.4g}>"


def _prompt_flags(prompts: Any, folder: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """A path stays one; texts, lists of messages and rows go into a file."""
    if isinstance(prompts, (str, os.PathLike)):
        return {"prompt_data": prompts}
    rows = read_rows(prompts)
    path = Path(folder) / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = {"prompt_data": path, "input_key": "prompt", "label_key": "label", "metadata_key": "metadata"}
    if any(isinstance(row["prompt"], list) for row in rows):
        made["apply_chat_template"] = True
    return {**made, **{name: value for name, value in flags.items() if name in made}}


def _refuse_unknown(flags: Mapping[str, Any], program: str | None) -> None:
    """A flag that the program does not know may be for functions of the user's, and `grpo` names one: its reward. So the
    keywords are shown to the program without it."""
    if not flags:
        return
    command = [program or find_program(), "train", "--dry-run", *flag_words(None, flags)]
    said = subprocess.run(command, capture_output=True, text=True, env=program_environment(), check=False)
    lines = [line.strip() for line in (said.stdout + said.stderr).splitlines()]
    unknown = [line.replace(" (--allow-unknown-flags goes on without it)", "") for line in lines if line.startswith("unknown flag")]
    refused = [line for line in unknown if "is for functions of the user's" not in line and "is ignored" not in line]
    if refused:
        raise RunOver("\n".join(refused))


def grpo(
    model: str | os.PathLike[str],
    prompts: str | os.PathLike[str] | Iterable[Any],
    reward: Callable[..., Any] | None = None,
    *,
    groups: int = 32,
    samples: int = 8,
    steps: int = 100,
    lr: float = 1e-6,
    max_tokens: int = 512,
    output: Any = None,
    program: str | None = None,
    **flags: Any,
) -> Iterator[Step]:
    """Trains `model` by GRPO, and gives each step when it is trained. Leaving the loop ends the run and saves it.

    `prompts`: a file of rows; or a list of texts, lists of messages, or rows {"prompt", "label", ...}.
    `reward`: a function of this script in any form of slime.loop.rewards, sync or async.
    Without it a flag names the reward (``rm_type="math"``). Other keywords are flags of `slime train`.

    >>> for step in slime.grpo("model", ["2+3="], lambda sample: sample.response.startswith("5")):    # doctest: +SKIP
    ...     print(step.index, step.reward)
    """
    _refuse_unknown(flags, program)
    socket = RewardSocket(reward, SimpleNamespace(**flags)) if reward is not None else None
    with tempfile.TemporaryDirectory(prefix="slime-prompts-") as folder:
        if socket is not None:
            flags.update(custom_rm_path="slime.loop.reward_client.score", group_rm=True, reward_socket=socket.path)
        words: dict[str, Any] = {
            **DEFAULTS_OF_SCRIPTS,
            "hf_checkpoint": model,
            "advantage_estimator": "grpo",
            "rollout_batch_size": groups,
            "n_samples_per_prompt": samples,
            "global_batch_size": groups * samples,
            "num_rollout": steps,
            "lr": lr,
            "rollout_max_response_len": max_tokens,
            **_prompt_flags(prompts, folder, flags),
            **flags,
        }
        try:
            with start(words, output=output, program=program) as run:
                for index in run.steps:
                    rollout = run.generate(index, wait=True)
                    training = run.train(rollout, wait=True)
                    run.update_weights(wait=True)
                    yield Step(run, rollout, training)
        except RunOver:
            if socket is not None and socket.failure is not None:
                raise socket.failure  # noqa: B904 - its cause is what the function raised
            raise
        finally:
            if socket is not None:
                socket.close()


async def agrpo(model: str | os.PathLike[str], prompts: Any, reward: Callable[..., Any] | None = None, **options: Any) -> AsyncIterator[Step]:
    """:func:`grpo` for an event loop: ``async for step in slime.agrpo(model, prompts, reward)``."""
    steps = grpo(model, prompts, reward, **options)
    try:
        while (step := await beside(lambda: next(steps, None), "slime-grpo")) is not None:
            yield step
    finally:
        await beside(steps.close, "slime-grpo")  # type: ignore[attr-defined]

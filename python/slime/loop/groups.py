"""Samples of a session in groups, and advantages from their rewards."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slime.loop.calls import Sample
from slime.loop.rewards import as_group_reward

__all__ = ["Group", "advantages_of", "read_rows"]

_EPSILON = 1e-6  # of a standard deviation, as in a run
_OWN_FIELDS = ("prompt", "label", "metadata")


def advantages_of(rewards: Sequence[float], how: str = "grpo") -> list[float]:
    """One number for each sample of a group.

    ``grpo``: minus the mean, by the standard deviation (unbiased, plus 1e-6). ``mean``: minus the mean (Dr. GRPO). ``rloo``:
    minus the mean of the others. ``none``: the rewards.

    >>> advantages_of([0.0, 1.0], "mean")
    [-0.5, 0.5]
    """
    count, total = float(len(rewards)), 0.0
    for each in rewards:  # not sum(), which is compensated in newer Pythons: a run adds like this
        total += each
    if how == "none":
        return [float(each) for each in rewards]
    mean = total / count
    centred = [each - mean for each in rewards]
    if how == "mean":
        return centred
    if how == "rloo":
        return centred if count < 2 else [each + each / (count - 1) for each in centred]
    if how != "grpo":
        raise ValueError(f"advantages {how!r}: there are 'grpo', 'mean', 'rloo' and 'none'")
    squares = 0.0
    for each in centred:
        squares += each * each
    deviation = math.sqrt(squares / (count - 1)) if count > 1 else 0.0
    return [each / (deviation + _EPSILON) for each in centred]


class Group(list):
    """The samples of one prompt, a list of :class:`slime.Sample`."""

    @property
    def rewards(self) -> list[float]:
        return [each.reward for each in self]

    def score(self, reward: Callable[..., Any], args: Any = None) -> Group:
        """Calls a reward of any form (slime.loop.rewards) on the samples and sets ``sample.reward``. Returns the group."""
        for sample, value in zip(self, as_group_reward(reward, args)(self)):
            sample.reward = value
        return self

    def advantages(self, how: str = "grpo") -> Group:
        """Sets ``sample.advantage``, one number for all tokens of a response, from the rewards (:func:`advantages_of`). Returns the
        group."""
        for sample, value in zip(self, advantages_of(self.rewards, how)):
            sample.advantage = value
        return self


def _row_of(prompt: Any) -> dict[str, Any]:
    if isinstance(prompt, Mapping):
        if "prompt" not in prompt:
            raise ValueError(f"a row of prompts has no \"prompt\"; it has {', '.join(map(str, prompt))}")
        own = prompt.get("metadata") or {}
        metadata = {**own, **{name: value for name, value in prompt.items() if name not in _OWN_FIELDS}}
        return {"prompt": prompt["prompt"], "label": prompt.get("label"), "metadata": metadata}
    return {"prompt": prompt, "label": None, "metadata": {}}


def read_rows(prompts: Any) -> list[dict[str, Any]]:
    """Rows with prompt, label and metadata: of a file of JSON lines or a JSON list; of texts, lists of messages or rows.

    Other fields of a row go into its metadata. Raises ValueError for a row without a prompt, and for an empty list.
    """
    if isinstance(prompts, (str, os.PathLike)):
        path = Path(prompts)
        if path.suffix not in (".jsonl", ".json"):
            raise ValueError(f"prompts {path}: a .jsonl or .json file, or a list, is read here; slime.grpo and slime.start(flags) read more")
        text = path.read_text(encoding="utf-8")
        # Not splitlines(), which also cuts at U+2028 and others that a text of JSON may contain as they are.
        prompts = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.split("\n") if line.strip()]
    rows = [_row_of(each) for each in prompts]
    if not rows:
        raise ValueError("prompts: there are none")
    return rows


def flat(samples: Iterable[Any]) -> list[Sample]:
    """The samples of groups, or of a list of samples."""
    made: list[Sample] = []
    for each in samples:
        if isinstance(each, Mapping):
            made.append(each if isinstance(each, Sample) else Sample(each))
        else:
            made.extend(each)
    return made

"""Reward functions in the forms that people have, told apart by their parameters.

======================================  =============================================================
``reward(sample)``                      a number for one sample
``reward(response, label)``             any of prompt, response, label, metadata, tokens, by name
``reward(args, sample)``                the form of `--custom-rm-path`; ``(args, samples)`` a list for a list
``reward(completions, prompts, ...)``   TRL's form over lists; columns of the rows are keywords
======================================  =============================================================

Each may be async. A list of functions counts as their sum.
"""

from __future__ import annotations

import asyncio
import inspect
import linecache
import math
import os
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from slime.loop.errors import RewardError

__all__ = ["as_group_reward", "run_coroutine"]

_FIELDS = ("prompt", "response", "label", "metadata", "tokens", "sample")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SHOWN_TEXT = 200

GroupReward = Callable[[Sequence[Any]], "list[float]"]


class _EventLoop:
    """An event loop in a thread of its own: the script's may be running already, as in a notebook."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        with self._lock:
            if self._loop is None or self._process != os.getpid():
                self._loop, self._process = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="slime-async", daemon=True).start()
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C
            raise


_event_loop = _EventLoop()


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Its result, from any thread, whether an event loop is running there or not."""
    return _event_loop.run(coroutine)


def _place(frame: traceback.FrameSummary) -> str:
    """`cell In[3], line 2` in a notebook, `file:line` elsewhere."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(frame.filename)
    if named:
        return f"{' '.join(named).lower().replace('in[', 'In[')}, line {frame.lineno}"
    return f"{frame.filename}:{frame.lineno}"


def _frames_of_user(error: BaseException) -> list[traceback.FrameSummary]:
    linecache.checkcache()
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not os.path.abspath(each.filename).startswith(_PACKAGE + os.sep)]
    library = (os.path.dirname(asyncio.__file__), os.path.dirname(threading.__file__) + os.sep + "concurrent")
    return [each for each in own if not each.filename.startswith(library)]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_TEXT else text[:_SHOWN_TEXT] + "..."


def _error_of(name: str, samples: Sequence[Any], error: BaseException) -> RewardError:
    frames = _frames_of_user(error)
    where = f" at {_place(frames[-1])}" if frames else ""
    lines = [f"{name} failed{where}: {type(error).__name__}: {error}"]
    shown = samples[0] if len(samples) == 1 else None
    if shown is not None:
        lines.append(f"  sample: prompt {_shown(shown.get('prompt'))}, response {_shown(shown.get('response'))}, label {_shown(shown.get('label'))}")
    else:
        lines.append(f"  it was given {len(samples)} samples; the first: prompt {_shown(samples[0].get('prompt'))}")
    for frame in frames:
        lines.append(f"  {_place(frame)}, in {frame.name}")
        if frame.line:
            lines.append(f"    {frame.line}")
    made = RewardError("\n".join(lines), sample=shown if shown is not None else samples[0])
    made.__cause__ = error
    return made


def _number(value: Any, name: str, sample: Any) -> float:
    item = getattr(value, "item", None)
    try:
        number = float(item() if callable(item) else value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isfinite(number):
        return number
    response = _shown(sample.get("response"))
    raise RewardError(f"{name} gave {_shown(value)}, which is no finite number, for the response {response}", sample=sample)


def _name_of(reward: Callable[..., Any]) -> str:
    return f"reward function {getattr(reward, '__name__', type(reward).__name__)}"


def _parameters(reward: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(reward).parameters)
    except (TypeError, ValueError):
        return {}


async def _each(call: Callable[[Any], Any], samples: Sequence[Any], name: str) -> list[Any]:
    async def one(sample: Any) -> Any:
        try:
            return await call(sample)
        except Exception as error:
            raise _error_of(name, [sample], error) from error

    return list(await asyncio.gather(*(one(each) for each in samples)))


def _for_each(call: Callable[[Any], Any], name: str) -> GroupReward:
    def score(samples: Sequence[Any]) -> list[float]:
        values = []
        for place, sample in enumerate(samples):
            try:
                value = call(sample)
            except Exception as error:
                raise _error_of(name, [sample], error) from error
            if inspect.isawaitable(value):
                getattr(value, "close", lambda: None)()  # an async function: all of them at once
                values = run_coroutine(_each(call, samples, name))
                break
            values.append(value)
            del place
        return [_number(value, name, sample) for value, sample in zip(values, samples)]

    return score


def _for_all(call: Callable[[Sequence[Any]], Any], name: str, unit: str) -> GroupReward:
    async def awaited(value: Any) -> Any:
        return await value

    def score(samples: Sequence[Any]) -> list[float]:
        try:
            value = call(samples)
            if inspect.isawaitable(value):
                value = run_coroutine(awaited(value))
            values = list(value)
        except Exception as error:
            raise _error_of(name, samples, error) from error
        if len(values) != len(samples):
            raise RewardError(f"the reward gave {len(values)} numbers for {len(samples)} {unit}", sample=samples[0])
        return [_number(each, name, sample) for each, sample in zip(values, samples)]

    return score


def _columns(samples: Sequence[Any]) -> dict[str, list[Any]]:
    """Fields of the rows, as TRL gives those of a data set to a reward."""
    names = {name for sample in samples for name in sample["metadata"] or {}}
    columns = {name: [(sample["metadata"] or {}).get(name) for sample in samples] for name in names}
    columns["label"] = [sample["label"] for sample in samples]
    return columns


def _completion(sample: Any) -> Any:
    """A list of messages where the prompt is one, as in TRL."""
    return [{"role": "assistant", "content": sample["response"]}] if isinstance(sample["prompt"], list) else sample["response"]


def _over_lists(reward: Callable[..., Any], parameters: dict[str, inspect.Parameter], name: str) -> GroupReward:
    kinds = inspect.Parameter
    takes_all = any(each.kind is kinds.VAR_KEYWORD for each in parameters.values())
    named = [each for each in parameters.values() if each.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]

    def call(samples: Sequence[Any]) -> Any:
        given = {**_columns(samples), "prompts": [each["prompt"] for each in samples], "completions": [_completion(each) for each in samples]}
        given["completion_ids"] = [each["tokens"][len(each["tokens"]) - each["response_length"] :] for each in samples]
        for each in named:  # a column that no row has
            if each.name not in given and each.default is kinds.empty:
                given[each.name] = [None] * len(samples)
        wanted = {each.name for each in named}
        return reward(**(given if takes_all else {key: value for key, value in given.items() if key in wanted}))

    return _for_all(call, name, "completions")


def _by_name(reward: Callable[..., Any], names: Sequence[str], name: str) -> GroupReward:
    def call(sample: Any) -> Any:
        return reward(**{each: sample if each == "sample" else sample[each] for each in names})

    return _for_each(call, name)


def as_group_reward(reward: Callable[..., Any] | Sequence[Callable[..., Any]], args: Any = None) -> GroupReward:
    """The one form inside: a list of samples to a list of numbers. `args`: what functions of the form ``(args, sample)`` get.

    Raises TypeError for a function of none of the forms.
    """
    if isinstance(reward, (list, tuple)):
        parts = [as_group_reward(each, args) for each in reward]
        return lambda samples: [sum(values) for values in zip(*(part(samples) for part in parts))]
    if not callable(reward):
        raise TypeError(f"reward: a function is needed, not {_shown(reward)}")
    parameters, name = _parameters(reward), _name_of(reward)
    positional = [
        each.name
        for each in parameters.values()
        if each.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    needed = [each.name for each in parameters.values() if each.default is inspect.Parameter.empty and each.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)]  # fmt: skip
    if "completions" in parameters or "prompts" in parameters:
        return _over_lists(reward, parameters, name)
    if positional[:2] == ["args", "sample"]:
        return _for_each(lambda sample: reward(args, sample), name)
    if positional[:2] == ["args", "samples"]:
        return _for_all(lambda samples: reward(args, list(samples)), name, "samples")
    if "response" in parameters and set(needed) <= set(_FIELDS):
        return _by_name(reward, [each for each in parameters if each in _FIELDS], name)
    if not parameters or (len(needed) <= 1 and positional):
        return _for_each(reward, name)
    raise TypeError(
        f"{name}({', '.join(parameters)}): a reward is reward(sample), reward(response, label) with names of "
        f"{', '.join(_FIELDS)}, reward(args, sample), or reward(prompts, completions, **columns) over lists"
    )

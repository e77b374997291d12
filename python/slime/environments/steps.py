"""Environments with `reset` and `step`, as Gymnasium has them, over text: gym:MODULE:FACTORY.

    class Game:
        def reset(self, seed=None, options=None): return observation, info
        def step(self, action): return observation, reward, terminated, truncated, info

An observation is the text of a user's message, or a list of messages. An action is the text of the model's answer; of an environment with
`tools` (a list of OpenAI's definitions) the list of its calls, where it makes some. Optional attributes: `system_prompt`, `tools`, `tasks` (a list of
JSON values, each the `options` of a reset; without it tasks are seeds without end), `close()`. Methods may be coroutines.
"""

import asyncio
import importlib
import inspect
import itertools
import json

from slime.environments import EnvironmentProblem, Score
from slime.environments.talk import open_talk
from slime.utils.misc import load_function

__all__ = ["Connector", "MOST_TURNS", "episode", "run_method"]

MOST_TURNS = 32


class Connector:
    def __init__(self, name, settings):
        module, _, factory = name.rpartition(":")
        if not module:
            raise EnvironmentProblem(f"gym:{name}: the function that makes it is missing, as in gym:{name}:make")
        self._max_turns = settings.pop("max_turns", MOST_TURNS)
        self._settings = settings
        try:
            self._factory = load_function(name) if module.endswith(".py") else getattr(importlib.import_module(module), factory)
        except (FileNotFoundError, AttributeError) as error:
            raise EnvironmentProblem(str(error)) from None
        except ModuleNotFoundError as error:
            if error.name != module.split(".")[0] and error.name != module:
                raise
            raise EnvironmentProblem(f"there is no module {module} in this folder or on PYTHONPATH") from None
        environment = self._make()
        for method in ("reset", "step"):
            if not callable(getattr(environment, method, None)):
                raise EnvironmentProblem(f"{factory}() makes a {type(environment).__name__}, which has no {method}()")
        tasks = getattr(environment, "tasks", None)
        self._tasks = None if tasks is None else list(tasks)
        self.is_endless = self._tasks is None

    def _make(self):
        try:
            return self._factory(**self._settings)
        except TypeError as error:
            raise EnvironmentProblem(f"{self._factory.__name__}(**{self._settings}): {error}") from error

    def tasks(self):
        if self._tasks is None:
            return ((f"seed {seed}", {"seed": seed}) for seed in itertools.count())
        return (
            (task if isinstance(task, str) else json.dumps(task, ensure_ascii=False), {"seed": seed, "options": task})
            for seed, task in enumerate(self._tasks)
        )

    async def play(self, task, sample, engine):
        environment = self._make()
        try:
            return await episode(environment, task, sample, engine, self._max_turns)
        finally:
            if callable(getattr(environment, "close", None)):
                await run_method(environment.close)


async def run_method(function, *args, **kwargs):
    """Without holding up the other episodes of this process."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)


def _heard(talk, observation, calls=()):
    """The observation as messages: an answer to each call, where there were calls."""
    if isinstance(observation, list) and all(isinstance(each, dict) and "role" in each for each in observation):
        talk.messages.extend(observation)
    elif calls:
        texts = observation if isinstance(observation, (list, tuple)) and len(observation) == len(calls) else [observation] * len(calls)
        for call, text in zip(calls, texts):
            talk.hear(str(text), "tool", tool_call_id=call["id"])
    else:
        talk.hear(str(observation))


def _action(message):
    """(what step() gets, the calls in it)."""
    calls = message.get("tool_calls") or []
    if not calls:
        return message.get("content") or "", []
    made = []
    for call in calls:
        try:
            arguments = json.loads(call["function"]["arguments"])
        except ValueError:
            arguments = call["function"]["arguments"]
        made.append({"id": call["id"], "name": call["function"]["name"], "arguments": arguments})
    return made, made


def _stepped(result):
    """(observation, reward, ended, info) of five values, as Gymnasium returns them, or four, as gym did."""
    if not isinstance(result, tuple) or len(result) not in (4, 5):
        raise TypeError(f"step() returned {type(result).__name__}; it is (observation, reward, terminated, truncated, info)")
    return result[0], float(result[1]), any(map(bool, result[2:-1])), result[-1] or {}


async def episode(environment, task, sample, engine, max_turns):
    """Its samples: the reward is the sum of the steps', numbers of info["metrics"] are its parts."""
    options = {"options": task["options"]} if "options" in task else {}
    first = await run_method(environment.reset, seed=task.get("seed"), **options)
    observation = first[0] if isinstance(first, tuple) else first
    system = getattr(environment, "system_prompt", None)
    messages = [{"role": "system", "content": system}] if system else []
    total, parts = 0.0, {}
    async with open_talk(engine, messages, getattr(environment, "tools", None)) as (talk, finish):
        _heard(talk, observation)
        ended = False
        while not (ended or talk.is_cut_off) and talk.num_turns < max_turns:
            message = await talk.say()
            if message is None:
                break
            action, calls = _action(message)
            observation, reward, ended, info = _stepped(await run_method(environment.step, action))
            total += reward
            parts.update(info.get("metrics") or {})
            if not ended:
                _heard(talk, observation, calls)
        parts["turns"] = talk.num_turns
        return await finish(sample, Score(total, parts))

"""Environments of OpenEnv 0.10: openenv:http://HOST:PORT, a server, or openenv:MODULE:CLASS, its class in this process.

An action is made of the text of the model's answer: the one text field that the action's schema requires, or a JSON object where there are several.
An observation's text is its one text field, or the object as JSON. Settings: {"action_field": "message", "observation_field": "text",
"system_prompt": "...", "max_turns": 8}, and for a class its own arguments.
"""

import importlib
import itertools
import json
import typing
import urllib.request

from openenv.core import GenericEnvClient

from slime.environments import EnvironmentProblem
from slime.environments.steps import MOST_TURNS, episode, run_method

__all__ = ["Connector"]

_OF_ALL = ("metadata", "done", "reward")  # fields that every action or observation has


def _fields(schema):
    return {name: field for name, field in schema.get("properties", {}).items() if name not in _OF_ALL}


class _Form:
    """How answers become actions and observations texts."""

    def __init__(self, schemas, settings):
        fields = _fields(schemas["action"])
        required = [name for name in schemas["action"].get("required", []) if name in fields] or list(fields)
        given = settings.pop("action_field", None)
        if given is not None and given not in fields:
            raise EnvironmentProblem(f"--environment-args: action_field {given}: an action has {', '.join(fields) or 'no fields'}")
        is_text = len(required) == 1 and fields[required[0]].get("type") == "string"
        self._action_field = given or (required[0] if is_text else None)
        self._observation_field = settings.pop("observation_field", None)
        self.system_prompt = settings.pop("system_prompt", None)
        if self.system_prompt is None and self._action_field is None:
            self.system_prompt = f"Answer with one JSON object: {json.dumps({'properties': fields, 'required': required})}"

    def action(self, text):
        """None for a text that is no action."""
        if self._action_field is not None:
            return {self._action_field: text}
        try:
            made = json.loads(text)
        except ValueError:
            return None
        return made if isinstance(made, dict) else None

    def text(self, observation):
        shown = {name: value for name, value in observation.items() if name not in _OF_ALL}
        if self._observation_field is not None:
            return str(shown[self._observation_field])
        texts = [value for value in shown.values() if isinstance(value, str)]
        return texts[0] if len(texts) == 1 and len(shown) == 1 else json.dumps(shown, ensure_ascii=False)


class _Steps:
    """An environment as slime.environments.steps plays them. `reset` and `step`: coroutine functions that return (observation, reward, done)."""

    def __init__(self, form, reset, step):
        self._form, self._reset, self._step, self.system_prompt = form, reset, step, form.system_prompt

    async def reset(self, seed=None, options=None):
        return self._form.text((await self._reset(seed=seed))[0]), {}

    async def step(self, text):
        action = self._form.action(text)
        if action is None:
            return "That is no JSON object.", 0.0, False, False, {"metrics": {"malformed": 1}}
        observation, reward, done = await self._step(action)
        return self._form.text(observation), float(reward or 0), bool(done), False, {}


class Connector:
    is_endless = True

    def __init__(self, name, settings):
        self._max_turns = settings.pop("max_turns", MOST_TURNS)
        self._is_server = name.startswith(("http://", "https://"))
        self._name, self._class = name, None if self._is_server else self._class_of(name)
        self._form = _Form(self._schemas(), settings)
        if self._is_server and settings:
            raise EnvironmentProblem(f"--environment-args: a server of OpenEnv takes no {', '.join(settings)}")
        self._settings = settings

    @staticmethod
    def _class_of(name):
        module, _, class_name = name.rpartition(":")
        try:
            return getattr(importlib.import_module(module), class_name)
        except (ModuleNotFoundError, AttributeError, ValueError) as error:
            raise EnvironmentProblem(f"openenv:{name}: {error}; it is http://HOST:PORT or MODULE:CLASS") from None

    def _schemas(self):
        if not self._is_server:
            bases = [base for each in self._class.__mro__ for base in getattr(each, "__orig_bases__", ())]
            arguments = next((typing.get_args(base) for base in bases if len(typing.get_args(base)) == 3), None)
            if arguments is None:
                raise EnvironmentProblem(f"{self._class.__name__} is no Environment[Action, Observation, State]")
            self._action = arguments[0]
            return {"action": self._action.model_json_schema()}
        try:
            with urllib.request.urlopen(f"{self._name.rstrip('/')}/schema", timeout=10) as answer:
                return json.load(answer)
        except (OSError, ValueError) as error:
            raise EnvironmentProblem(f"{self._name}/schema: {error}; is a server of OpenEnv running there?") from None

    def tasks(self):
        return ((f"seed {seed}", {"seed": seed}) for seed in itertools.count())

    async def play(self, task, sample, engine):
        if not self._is_server:
            return await self._play_here(task, sample, engine)
        async with GenericEnvClient(base_url=self._name) as client:

            async def reset(**arguments):
                result = await client.reset(**arguments)
                return result.observation, result.reward, result.done

            async def step(action):
                result = await client.step(action)
                return result.observation, result.reward, result.done

            return await episode(_Steps(self._form, reset, step), task, sample, engine, self._max_turns)

    async def _play_here(self, task, sample, engine):
        environment = self._class(**self._settings)

        def parts(observation):
            return observation.model_dump(mode="json"), observation.reward, observation.done

        async def reset(**arguments):
            return parts(await run_method(environment.reset, **arguments))

        async def step(action):
            return parts(await run_method(environment.step, self._action(**action)))

        try:
            return await episode(_Steps(self._form, reset, step), task, sample, engine, self._max_turns)
        finally:
            await run_method(environment.close)

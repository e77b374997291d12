"""Tasks of Harbor 0.26: harbor:FOLDER, a task or a folder of tasks.

A trial is Harbor's own: its agent, its environment, its verifier. The agent speaks to a session of the run's server, whose address it gets as
its model's base URL; the session's turns are the samples, the verifier's rewards the score. Settings are those of a trial:
{"agent": {"name": "mini-swe-agent"}, "environment": {"type": "docker"}, "verifier": {...}, "reward": "NAME"}.
"""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

from harbor.models.trial.config import TrialConfig
from harbor.trial.trial import Trial
from pydantic import ValidationError

from slime.environments import EnvironmentProblem, Score
from slime.environments.talk import open_session

__all__ = ["Connector"]

KEY = "SLIME_SESSION_KEY"  # agents want a variable with a key; the session is in the address


class Connector:
    is_endless = False

    def __init__(self, name, settings):
        folder = Path(name).expanduser().resolve()
        self._folders = [each.parent for each in sorted([*folder.glob("task.toml"), *folder.glob("*/task.toml")])]
        if not self._folders:
            raise EnvironmentProblem(f"{folder}: no task.toml in it or in a folder of it")
        self._reward = settings.pop("reward", None)
        self._settings = settings
        os.environ.setdefault(KEY, "none")
        try:
            self._config(self._folders[0], "http://127.0.0.1", Path("."))
        except ValidationError as error:
            raise EnvironmentProblem(f"--environment-args: {error}") from None

    def tasks(self):
        for folder in self._folders:
            instruction = folder / "instruction.md"
            yield instruction.read_text(encoding="utf-8") if instruction.exists() else folder.name, {"path": str(folder)}

    def _config(self, task, url, trials):
        agent = {"model_name": "openai/slime-actor", "model_api_key_name": KEY, **self._settings.get("agent", {}), "base_url": url}
        return TrialConfig.model_validate({**self._settings, "task": {"path": task}, "trials_dir": trials, "agent": agent})

    async def play(self, task, sample, engine):
        trials = Path(tempfile.mkdtemp(prefix="slime-harbor-"))
        try:
            async with open_session(engine) as (url, finish):
                trial = await Trial.create(self._config(Path(task["path"]), url + "/v1", trials))
                result = await trial.run()
                return await finish(sample, self._score(result))
        finally:
            await asyncio.to_thread(shutil.rmtree, trials, ignore_errors=True)

    def _score(self, result):
        """Raises what the trial recorded; an agent that was out of time is scored as any other."""
        rewards = result.verifier_result.rewards if result.verifier_result is not None else None
        if not rewards:
            failure = result.exception_info
            told = f"{failure.exception_type}: {failure.exception_message}\n{failure.exception_traceback}" if failure else "no reward"
            raise RuntimeError(f"{result.task_name}: {told}")
        name = self._reward or ("reward" if "reward" in rewards else next(iter(rewards)) if len(rewards) == 1 else None)
        if name not in rewards:
            raise RuntimeError(f"{result.task_name}: the rewards are {', '.join(rewards)}; --environment-args {{\"reward\": ...}} names one")
        return Score(rewards[name], rewards)

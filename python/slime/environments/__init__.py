"""Environments of other frameworks: their tasks are rows, their episodes samples (docs/environments.md).

    slime train --environment gym:my_game:make ...

The program opens the environment once before the run (__main__.py) and calls `generate` for each sample. A framework is a module
of this folder with a class `Connector`, which has

    __init__(name, settings)         imports the framework and loads the environment; raises EnvironmentProblem
    is_endless                       whether tasks() never ends
    tasks()                          yields (prompt, task): what people see of it, and a JSON object that play() gets
    play(task, sample, engine)       plays one episode; returns its samples, each with a Score's record as its reward
"""

import asyncio
import dataclasses
import importlib
import json

__all__ = ["Engine", "EnvironmentProblem", "KINDS", "Score", "generate", "open_environment"]


class EnvironmentProblem(Exception):
    """Something that the user can mend: said without a traceback."""


@dataclasses.dataclass(frozen=True)
class Kind:
    module: str
    form: str  # what stands behind the colon
    package: str = ""  # that has to be importable
    install: str = ""
    python: tuple = (3, 9)


KINDS = {
    "gym": Kind("slime.environments.steps", "MODULE:FACTORY or FILE.py:FACTORY"),
    "harbor": Kind("slime.environments.harbor_tasks", "FOLDER of tasks", "harbor", "harbor==0.26.0", (3, 12)),
    "openenv": Kind("slime.environments.openenv_server", "http://HOST:PORT or MODULE:CLASS", "openenv", "openenv==0.10.0", (3, 10)),
    "verifiers": Kind("slime.environments.verifiers_v1", "NAME of a taskset", "verifiers", "verifiers==0.4.0", (3, 11)),
}


SPLIT = ("num_tasks", "num_eval_tasks")  # settings that __main__.py reads


@dataclasses.dataclass
class Score:
    """Of one episode: `reward` is trained, `parts` are metrics."""

    reward: float
    parts: dict = dataclasses.field(default_factory=dict)

    def record(self):
        """What a sample has as its reward."""
        numbers = {name: value for name, value in self.parts.items() if isinstance(value, (int, float)) and name != "reward"}
        return {**numbers, "reward": float(self.reward)}


@dataclasses.dataclass
class Engine:
    """The run's engine for one episode."""

    url: str
    model: str  # a directory: tokenizer and template
    sampling_params: dict
    max_context_tokens: int
    is_evaluation: bool


_opening = {}  # the environment of this process: a task


async def _opened(environment, settings):
    """Opened once, in a thread: a framework takes seconds to import, and the host's loop must not stand still."""
    key = (environment, settings)
    if key not in _opening:
        _opening[key] = asyncio.ensure_future(asyncio.to_thread(open_environment, environment, json.loads(settings)))
    return await asyncio.shield(_opening[key])


def open_environment(environment, settings):
    """The connector of "kind:name". Raises EnvironmentProblem."""
    import sys

    kind_name, _, name = environment.partition(":")
    kind = KINDS.get(kind_name)
    if kind is None or not name:
        forms = ", ".join(f"{each}:{kind.form}" for each, kind in KINDS.items())
        raise EnvironmentProblem(f"should be one of {forms}")
    if sys.version_info < kind.python:
        wanted = ".".join(map(str, kind.python))
        raise EnvironmentProblem(f"{kind.package} needs Python {wanted} or later, {sys.executable} is {sys.version.split()[0]}; "
                                 "name another one: --plugin-python")  # fmt: skip
    try:
        if kind.package:
            importlib.import_module(kind.package)
    except ImportError as error:
        if error.name and error.name.split(".")[0] != kind.package:
            raise EnvironmentProblem(f"{kind.package} cannot be imported by {sys.executable}: {error}") from error
        raise EnvironmentProblem(f"{sys.executable} has no {kind.package}: {sys.executable} -m pip install {kind.install}, "
                                 "or name an interpreter that has it: --plugin-python") from None  # fmt: skip
    own = {key: value for key, value in settings.items() if key not in SPLIT}
    return importlib.import_module(kind.module).Connector(name, own)


async def generate(args, sample, sampling_params, evaluation=False):
    """Plays the episode of a row: the generate function of runs with --environment."""
    task = (sample.metadata or {}).get("environment_task")
    if task is None:
        raise ValueError("the row has no metadata.environment_task: it is not one of --environment's")
    engine = Engine(
        url=f"http://{args.sglang_router_ip}:{args.sglang_router_port}",
        model=args.hf_checkpoint,
        sampling_params=sampling_params,
        max_context_tokens=args.rollout_max_context_len or 0,
        is_evaluation=evaluation,
    )
    environment = await _opened(args.environment, args.environment_args)
    samples = await environment.play(task, sample, engine)
    if not samples:
        raise RuntimeError("the episode ended without a token of the model's")
    return samples


generate.abort_mode = "request"  # an episode that is aborted is played again from its beginning

"""Users' functions and classes that are written in another form than slime calls them in, as ones that it can call.

    async def custom_generate(args, samples, evaluation=False)       a generate function of batches
    class MyModel: compute_reward(self, prompts, responses)          a reward of batches, an object or a function
    class MySource: get_samples, or buffer_filter alone              a data source without its other methods
"""

import asyncio
import copy
import functools
import inspect
from concurrent.futures import ThreadPoolExecutor

from slime.data.data_source import RolloutDataSourceWithBuffer
from slime.utils.misc import load_function
from slime.utils.types import Sample

__all__ = ["as_generate", "as_groups", "as_reward", "is_batch_generate", "is_batch_reward", "make_source", "object_of", "reward_of"]


def takes(function, positional, keywords=()):
    """Whether it can be called with these."""
    try:
        inspect.signature(function).bind(*positional, **{name: None for name in keywords})
    except (TypeError, ValueError):
        return False
    return True


def _parameters(function):
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _required(function):
    return [
        name
        for name, each in _parameters(function).items()
        if each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]


# Generate functions.


def is_batch_generate(function):
    """(args, samples), with or without `evaluation`."""
    named = [name for name in ("evaluation",) if name in _parameters(function)]
    is_usual = takes(function, ("args", "sample", "sampling_params"), named)
    return not is_usual and len(_required(function)) == 2 and takes(function, ("args", "samples"), named)


@functools.lru_cache(maxsize=None)
def as_generate(function):
    """The function, or one of single samples that calls it with lists of one."""
    if not is_batch_generate(function):
        return function
    takes_evaluation = "evaluation" in _parameters(function)

    async def generate(args, sample, sampling_params, evaluation=False):
        made = function(args, [sample], **({"evaluation": evaluation} if takes_evaluation else {}))
        made = await made if inspect.isawaitable(made) else made
        if made is None:  # changed where it is
            return sample
        return made[0] if isinstance(made, (list, tuple)) and len(made) == 1 else made

    for name in ("__name__", "__qualname__", "__module__", "__doc__", "abort_mode"):
        if hasattr(function, name):
            setattr(generate, name, getattr(function, name))
    return generate


# Rewards.


def is_batch_reward(function):
    """compute_reward(prompts, responses): a function with these two, or an object or class with such a method."""
    if inspect.isclass(function) or not callable(function):
        return callable(getattr(function, "compute_reward", None))
    return _required(function)[:2] == ["prompts", "responses"]


class WrongNumberOfRewards(TypeError):
    """Rewards of which nobody knows whose they are; another call would only guess."""


class _BatchReward:
    """Samples that wait while a batch is scored are the next batch."""

    MOST = 256

    def __init__(self, compute):
        self._compute = compute
        self._waiting = []  # (samples, future)
        self._scorer = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rewards")

    async def reward(self, args, sample, **kwargs):
        samples = sample if isinstance(sample, list) else [sample]
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((samples, future))
        if self._scorer is None or self._scorer.done():
            self._scorer = asyncio.ensure_future(self._score_waiting())
        rewards = await future
        return rewards if isinstance(sample, list) else rewards[0]

    async def _score_waiting(self):
        while self._waiting:
            batch, count = [], 0
            while self._waiting and (not batch or count + len(self._waiting[0][0]) <= self.MOST):
                batch.append(self._waiting.pop(0))
                count += len(batch[-1][0])
            try:
                await self._answer(batch)
            except WrongNumberOfRewards as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(WrongNumberOfRewards(*error.args))
            except Exception:
                for one in batch:  # whose fault it was
                    try:
                        await self._answer([one])
                    except Exception as error:
                        if not one[1].done():
                            one[1].set_exception(error)

    async def _answer(self, batch):
        samples = [sample for some, _ in batch for sample in some]
        prompts, responses = [each.prompt for each in samples], [each.response for each in samples]
        if inspect.iscoroutinefunction(self._compute):
            rewards = await self._compute(prompts, responses)
        else:
            loop = asyncio.get_running_loop()
            rewards = await loop.run_in_executor(self._thread, self._compute, prompts, responses)
        rewards = rewards.tolist() if hasattr(rewards, "tolist") else rewards
        if not isinstance(rewards, (list, tuple)) or len(rewards) != len(samples):
            told = f"{len(rewards)} rewards" if isinstance(rewards, (list, tuple)) else type(rewards).__name__
            raise WrongNumberOfRewards(f"compute_reward returned {told} for {len(samples)} responses; it is a list with one for each")
        place = 0
        for some, future in batch:
            if not future.done():
                future.set_result(list(rewards[place : place + len(some)]))
            place += len(some)


def as_reward(function):
    """async (args, sample or samples) of what is_batch_reward()."""
    return _batch_reward(getattr(function, "compute_reward", function))


# Classes.


def _arguments(cls, args, known):
    """Of the constructor, by the names of its parameters. Throws TypeError for one that nobody knows."""
    given, missing = {}, []
    for name, each in list(inspect.signature(cls).parameters.items()):
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue
        if name in known:
            given[name] = known[name]()
        elif vars(args).get(name) is not None:
            given[name] = getattr(args, name)
        elif each.default is each.empty:
            missing.append(name)
    if missing:
        flags = ", ".join(f"--{name.replace('_', '-')} VALUE" for name in missing)
        raise TypeError(f"{cls.__name__}() wants {', '.join(missing)}; it gets args, and flags by their names: give {flags}")
    positional = [
        given.pop(name)
        for name, each in inspect.signature(cls).parameters.items()
        if each.kind is each.POSITIONAL_ONLY and name in given
    ]
    return positional, given


def construct(cls, args, known=None, takes_args=True):
    """Its object: parameters get what is called as they are, of `known` and of `args`. With `takes_args` a single one
    without a default gets `args` whatever its name."""
    required = _required(cls)
    if takes_args and len(required) == 1 and required[0] not in vars(args) and required[0] not in (known or {}):
        return cls(args)
    positional, named = _arguments(cls, args, {"args": lambda: args, **(known or {})})
    return cls(*positional, **named)


_objects = {}  # by class


def object_of(cls, args, takes_args=True):
    """The one object of a class that is called as functions are; the first call makes it."""
    if cls not in _objects:
        _objects[cls] = construct(cls, args, takes_args=takes_args)
    return _objects[cls]


@functools.lru_cache(maxsize=None)
def _batch_reward(compute):
    return _BatchReward(compute).reward


def reward_of(path, args):
    """What the path of a reward leads to, to be called with (args, sample or samples)."""
    function = load_function(path)
    is_batch = is_batch_reward(function)
    if inspect.isclass(function):
        function = object_of(function, args, takes_args=not is_batch)
    return as_reward(function) if is_batch else function


class _Rest:
    """Methods that a data source may lack: what is given back is kept, and nothing is saved."""

    def add_samples(self, samples):
        self.__dict__.setdefault("_given_back", []).extend(samples)

    def save(self, rollout_id):
        pass

    def load(self, rollout_id=None):
        pass

    def __len__(self):
        return 0


class _GivenBackFirst:
    def get_samples(self, num_samples):
        kept = self.__dict__.setdefault("_given_back", [])
        groups = kept[:num_samples]
        del kept[:num_samples]
        missing = num_samples - len(groups)
        return groups + list(super().get_samples(missing)) if missing > 0 else groups


_METHODS = ("get_samples", "add_samples", "save", "load", "__len__")


def lacks(cls):
    """Methods of a data source that the class has not, or has without a body."""
    abstract = getattr(cls, "__abstractmethods__", ())
    return [name for name in _METHODS if name in abstract or not callable(getattr(cls, name, None))]


def make_source(cls, args):
    """An object of a data source's class. What the class lacks is the package's own: without get_samples all of
    RolloutDataSourceWithBuffer, else the keeping of groups that are given back."""
    missing = lacks(cls)
    known = {"dataset": lambda: RolloutDataSourceWithBuffer(args).dataset}
    if "get_samples" in missing:
        bases = (cls,) if issubclass(cls, RolloutDataSourceWithBuffer) else (cls, RolloutDataSourceWithBuffer)
        made = type(cls.__name__, bases, {"__module__": cls.__module__})
        source = made.__new__(made)
        RolloutDataSourceWithBuffer.__init__(source, args)
        if cls.__init__ not in (object.__init__, RolloutDataSourceWithBuffer.__init__):
            bound = functools.partial(cls.__init__, source)
            positional, named = _arguments(bound_like(cls, bound), args, {"args": lambda: args, **known})
            bound(*positional, **named)
        return source
    if not missing:
        return construct(cls, args, known)
    front = (_GivenBackFirst,) if "add_samples" in missing else ()
    rest = {"__module__": cls.__module__, **{name: getattr(_Rest, name) for name in missing}}
    return construct(type(cls.__name__, (*front, cls, _Rest), rest), args, known)


def bound_like(cls, bound):
    """A callable with the constructor's parameters and the class's name."""
    bound.__name__ = cls.__name__
    return bound


def as_groups(args, result):
    """What get_samples returned as groups: a flat list of samples is one sample for each prompt, copied."""
    if not isinstance(result, (list, tuple)) or not result or not all(isinstance(each, Sample) for each in result):
        return result
    count = args.n_samples_per_prompt
    return [[sample, *(copy.deepcopy(sample) for _ in range(count - 1))] for sample in result]

"""Users' functions by hook: where each is found, and whether it takes the arguments that it will get.

Everything that is wrong is found when the run starts, all of it at once, with Python's own traceback.
"""

import importlib
import inspect
import sys
from dataclasses import dataclass, field
from typing import Any, List, Tuple

from slime.host.tracebacks import describe
from slime.rollout import other_forms
from slime.utils.misc import load_file, load_function

__all__ = ["Hook", "HOOKS", "resolve"]


@dataclass(frozen=True)
class Kind:
    """One hook: its flag, the names that a file may define it by, its arguments, how it is called."""

    flag: str
    names: Tuple[str, ...]  # the first one is what an error suggests
    positional: Tuple[str, ...]
    keywords: Tuple[str, ...] = ()
    if_named: Tuple[str, ...] = ()  # given to functions that have a parameter of the name
    in_thread: bool = False  # where the original calls it outside its event loop
    is_class: bool = False
    may_be_class: bool = False  # made once, with args; called as the function is
    methods: Tuple[str, ...] = ()  # that a class must have
    needs_torch: bool = False
    own_names: Tuple[str, ...] = ()  # that count only where the file itself defines them

    def form(self):
        """How one of one's own is written."""
        if self.is_class:
            return f"class {self.names[0]}: __init__(self, args), get_samples(self, num_samples), and optionally {', '.join(self.methods[1:])}"
        keywords = [f"{name}=None" for name in self.keywords]
        parameters = ", ".join([*self.positional, *(["*", *keywords] if keywords and not self.in_thread else keywords)])
        return f"{'def' if self.in_thread or self.needs_torch else 'async def'} {self.names[0]}({parameters})"


HOOKS = {
    "generate": Kind(
        "custom-generate-function-path", ("generate", "custom_generate"), ("args", "sample", "sampling_params"), (), ("evaluation",)
    ),
    "sample_hook": Kind(
        "rollout-sample-hook-path", ("sample_hook", "hook"), ("args", "sample"), (), ("rollout_id", "evaluation")
    ),
    "reward": Kind(
        "custom-rm-path", ("reward", "reward_func", "custom_rm", "compute_reward"), ("args", "sample"), may_be_class=True
    ),
    "dynamic_filter": Kind("dynamic-sampling-filter-path", ("dynamic_filter", "filter"), ("args", "samples")),
    "buffer_filter": Kind(
        "buffer-filter-path", ("buffer_filter", "filter"), ("args", "rollout_id", "buffer", "num_samples")
    ),
    "sample_filter": Kind("rollout-sample-filter-path", ("sample_filter", "filter"), ("args", "groups")),
    "all_samples": Kind(
        "rollout-all-samples-process-path",
        ("all_samples_process", "process"),
        ("args", "all_groups", "data_source"),
    ),
    "data_source": Kind(
        "data-source-path", ("DataSource",), ("args",), in_thread=True, is_class=True,
        methods=("get_samples", "add_samples", "save", "load"),
        own_names=("RolloutDataSourceWithBuffer", "RolloutDataSource"),
    ),
    "rollout": Kind(
        "rollout-function-path",
        ("rollout", "generate_rollout"),
        ("args", "rollout_id", "data_source"),
        ("evaluation",),
        in_thread=True,
        may_be_class=True,
    ),
    # Of the rollout function's path: what its module has besides.
    "weight_update": Kind("rollout-function-path", ("rollout", "generate_rollout"), ()),
    "post_write": Kind(
        "custom-update-weight-post-write-path",
        ("post_write", "post_write_hook"),
        ("args", "version_dir", "rollout_engines"),
        in_thread=True,
    ),
    "evaluate": Kind(
        "eval-function-path",
        ("evaluate", "eval_rollout", "rollout", "generate_rollout"),
        ("args", "rollout_id", "data_source"),
        ("evaluation",),
        in_thread=True,
        may_be_class=True,
    ),
    "reward_post_process": Kind(
        "custom-reward-post-process-path", ("reward_post_process",), ("args", "samples"), in_thread=True
    ),
    "convert": Kind(
        "custom-convert-samples-to-train-data-path",
        ("convert_samples_to_train_data", "convert"),
        ("args", "samples"),
        in_thread=True,
    ),
    "rollout_log": Kind(
        "custom-rollout-log-function-path",
        ("log_rollout", "log"),
        ("rollout_id", "args", "samples", "rollout_extra_metrics", "rollout_time"),
        in_thread=True,
    ),
    "eval_log": Kind(
        "custom-eval-rollout-log-function-path",
        ("log_eval", "log"),
        ("rollout_id", "args", "data", "extra_metrics"),
        in_thread=True,
    ),
    # Beside a trainer's rank.
    "init": Kind("custom-megatron-init-path", ("init",), ("args",)),
    "before_log_prob": Kind(
        "custom-megatron-before-log-prob-hook-path", ("before_log_prob",), ("args", "model", "store_prefix")
    ),
    "before_train_step": Kind(
        "custom-megatron-before-train-step-hook-path",
        ("before_train_step",),
        ("args", "rollout_id", "step_id", "model", "optimizer", "opt_param_scheduler"),
    ),
    "advantage": Kind(
        "custom-advantage-function-path", ("advantages", "advantage"), ("args", "rollout_data"), needs_torch=True
    ),
    "data_postprocess": Kind(
        "rollout-data-postprocess-path",
        ("data_postprocess",),
        ("args", "rollout_id", "rollout_data"),
        needs_torch=True,
    ),
    "loss": Kind(
        "custom-loss-function-path",
        ("loss", "loss_function"),
        ("args", "batch", "logits", "sum_of_sample_mean"),
        needs_torch=True,
    ),
    "tis": Kind(
        "custom-tis-function-path",
        ("tis", "tis_function"),
        ("args",),
        ("pg_loss", "train_log_probs", "rollout_log_probs", "loss_masks", "total_lengths", "response_lengths"),
        needs_torch=True,
    ),
    "reducer": Kind(
        "custom-pg-loss-reducer-function-path",
        ("reducer", "pg_loss_reducer"),
        ("total_lengths", "response_lengths", "loss_masks", "calculate_per_token_loss"),
        needs_torch=True,
    ),
}


@dataclass
class Hook:
    kind: str
    path: str
    function: Any
    is_coroutine: bool = False
    parameters: Tuple[str, ...] = ()
    takes_any_keyword: bool = False
    notes: List[str] = field(default_factory=list)  # for the user, of a form that is not slime's

    def takes(self, name):
        return self.takes_any_keyword or name in self.parameters


    def is_unmade(self):
        """It is a class whose object is what is called."""
        return inspect.isclass(self.function) and HOOKS[self.kind].may_be_class

    def make(self, args):
        """The object of a class that is called like the hook's function; one for all hooks of that class."""
        kind, cls = HOOKS[self.kind], self.function
        is_batch = self.kind == "reward" and other_forms.is_batch_reward(cls)
        own = other_forms.object_of(cls, args, takes_args=not is_batch)
        function = other_forms.as_reward(own) if is_batch else own
        if not callable(function):
            raise HookError(f"the class has no __call__; {_instead(kind)}")
        self.parameters, self.takes_any_keyword = _check_arguments(function, kind)
        call = function if inspect.isroutine(function) else type(function).__call__
        self.function, self.is_coroutine = function, inspect.iscoroutinefunction(call)


class HookError(ValueError):
    """A name that leads to nothing that can be called as this hook is."""


def _instead(kind):
    """What a right form looks like."""
    text = f"write `{kind.form()}`"
    if kind.flag == "custom-rm-path":
        text += ", or a class with `compute_reward(self, prompts, responses)`"
    return text


def _conventional(module, kind, file):
    for name in kind.names:
        if hasattr(module, name):
            return getattr(module, name)
    own = [each for each in vars(module).values() if getattr(each, "__module__", None) == module.__name__]
    for name in kind.own_names:
        if any(each is getattr(module, name, None) for each in own):
            return getattr(module, name)
    if kind.flag == "custom-rm-path":
        classes = [each for each in own if inspect.isclass(each) and other_forms.is_batch_reward(each)]
        if len(classes) == 1:
            return classes[0]
    names = ", ".join(kind.names + kind.own_names)
    raise HookError(f"{file} defines none of {names}; {_instead(kind)}, or name yours: {file}:my_name")


def find(path, kind):
    """What a path leads to: package.module.name, file.py:name, or file.py and the hook's own name in it."""
    if path.endswith(".py"):
        return _conventional(load_file(path), kind, path)
    try:
        return load_function(path)
    except AttributeError as error:
        if ".py:" in path:
            raise HookError(str(error)) from None
        module, _, name = path.rpartition(".")
        if getattr(error, "name", name) != name:
            raise
        names = [each for each in dir(importlib.import_module(module)) if not each.startswith("_")]
        raise HookError(f"{module} has no {name}; it has {', '.join(names[:12]) or 'nothing'}") from None


# What functions of slime.start(...).grpo and of TRL are given; here the flags would come in their place.
_OF_A_SAMPLE = ("prompt", "prompts", "response", "responses", "completion", "completions", "label", "text")


def _check_arguments(function, kind):
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return (), True
    parameters = signature.parameters
    any_keyword = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    names = kind.keywords + tuple(name for name in kind.if_named if name in parameters)
    try:
        signature.bind(*kind.positional, **{name: None for name in names})
    except TypeError as error:
        wanted = ", ".join(kind.positional + tuple(f"{name}=" for name in kind.keywords))
        raise HookError(f"is called with ({wanted}), but {error}; it is {signature}; {_instead(kind)}") from None
    first = next(iter(parameters), None)
    if kind.positional[:1] == ("args",) and first in _OF_A_SAMPLE:
        read = ", ".join(f"{kind.positional[-1]}.{name}" for name in parameters if name in ("prompt", "response", "label"))
        raise HookError(
            f"its first parameter is named {first}, but it is called with ({', '.join(kind.positional)}): {_instead(kind)}"
            + (f", and read {read}" if read else "")
        )
    return tuple(parameters), any_keyword


def _require_torch():
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise HookError(
            f"its tensors are torch's, and {sys.executable} cannot import torch ({error}); install it there, or name an "
            "interpreter that has it: --plugin-python"
        ) from None


def _beside(path, kind):
    """Of the same path as another hook, which says what is wrong with it."""
    try:
        return Hook("weight_update", path, find(path, kind))
    except BaseException:
        return Hook("weight_update", path, None)


def resolve(kind_name, path):
    """The hook. Throws whatever importing it throws, HookError for what cannot be called as this hook is."""
    if kind_name not in HOOKS:
        raise HookError(f"no hook {kind_name!r}")
    kind = HOOKS[kind_name]
    if kind_name == "weight_update":
        return _beside(path, kind)
    if kind.needs_torch:
        _require_torch()
    function = find(path, kind)
    is_class = inspect.isclass(function)
    if kind.is_class != is_class and not (is_class and kind.may_be_class):
        what = "a class is wanted, this is none" if kind.is_class else "a function is wanted, this is a class"
        raise HookError(f"{what}; {_instead(kind)}")
    notes = []
    if kind_name == "generate" and other_forms.is_batch_generate(function):
        function = other_forms.as_generate(function)
        notes.append("it takes a list of samples, and gets one at a time: many of its calls run at once")
    elif kind_name == "reward" and not is_class and other_forms.is_batch_reward(function):
        function = other_forms.as_reward(function)
    if not callable(function):
        raise HookError(f"a function is wanted, this is {type(function).__name__}; {_instead(kind)}")
    if is_class and not kind.is_class:
        is_called = any("__call__" in vars(base) for base in function.__mro__)
        if not is_called and not (kind_name == "reward" and other_forms.is_batch_reward(function)):
            raise HookError(f"the class has no __call__; {_instead(kind)}")
        return Hook(kind_name, path, function)  # called once it is made
    if kind.is_class:
        return Hook(kind_name, path, function, notes=_notes_of_source(function, kind))
    parameters, any_keyword = _check_arguments(function, kind)
    call = function if inspect.isroutine(function) else function.__call__
    return Hook(kind_name, path, function, inspect.iscoroutinefunction(call), parameters, any_keyword, notes)


def _notes_of_source(cls, kind):
    """What the package does in the place of methods that the class has not. Throws HookError for a class that is none."""
    missing = other_forms.lacks(cls)
    if "get_samples" in missing and not (callable(getattr(cls, "buffer_filter", None)) or hasattr(cls, "buffer")):
        raise HookError(f"the class has no get_samples; {_instead(kind)}")
    notes = []
    if "get_samples" in missing:
        notes.append("the class has no get_samples: it has that of RolloutDataSourceWithBuffer")
    elif {"save", "load"} & set(missing):
        notes.append("the class has no save and load: a run that goes on from a checkpoint begins its data anew")
    return notes


def problem_of(kind_name, path, error):
    """What the program is told of a hook that cannot be called."""
    flag = HOOKS[kind_name].flag if kind_name in HOOKS else kind_name
    problem = {"flag": f"--{flag}", "path": path, **describe(error)}
    if isinstance(error, HookError):
        problem["type"] = problem["traceback"] = ""  # it is ours, and says everything
    return problem


def resolve_all(wanted):
    """(hooks, problems) of [{"hook", "path"}]; a problem says flag, path, message and traceback."""
    hooks, problems = [], []
    for each in wanted:
        try:
            hooks.append(resolve(each["hook"], each["path"]))
        except BaseException as error:  # an import may do anything, sys.exit included
            problems.append(problem_of(each["hook"], each["path"], error))
    return hooks, problems

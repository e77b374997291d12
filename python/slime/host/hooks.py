"""Users' functions by hook: where each is found, and whether it takes the arguments that it will get.

Everything that is wrong is found when the run starts, all of it at once, with Python's own traceback.
"""

import importlib
import inspect
import sys
from dataclasses import dataclass
from typing import Any, Tuple

from slime.host.tracebacks import describe
from slime.utils.misc import load_file, load_function

__all__ = ["Hook", "HOOKS", "resolve"]


@dataclass(frozen=True)
class Kind:
    """One hook: its flag, the names that a file may define it by, its arguments, how it is called."""

    flag: str
    names: Tuple[str, ...]
    positional: Tuple[str, ...]
    keywords: Tuple[str, ...] = ()
    if_named: Tuple[str, ...] = ()  # given to functions that have a parameter of the name
    in_thread: bool = False  # where the original calls it outside its event loop
    is_class: bool = False
    may_be_class: bool = False  # made once, with args; called as the function is
    methods: Tuple[str, ...] = ()  # that a class must have
    needs_torch: bool = False


HOOKS = {
    "generate": Kind(
        "custom-generate-function-path", ("generate",), ("args", "sample", "sampling_params"), (), ("evaluation",)
    ),
    "sample_hook": Kind(
        "rollout-sample-hook-path", ("sample_hook", "hook"), ("args", "sample"), (), ("rollout_id", "evaluation")
    ),
    "reward": Kind("custom-rm-path", ("reward", "reward_func", "custom_rm"), ("args", "sample")),
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

    def takes(self, name):
        return self.takes_any_keyword or name in self.parameters


    def is_unmade(self):
        """It is a class whose object is what is called."""
        return inspect.isclass(self.function) and HOOKS[self.kind].may_be_class

    def make(self, args, made):
        """The object of a class that is called like the hook's function; one for all hooks of that class (`made`)."""
        kind, cls = HOOKS[self.kind], self.function
        if cls not in made:
            takes_args = any(name != "self" for name in inspect.signature(cls).parameters)
            made[cls] = cls(args) if takes_args else cls()
        if not callable(made[cls]):
            raise HookError(f"the class has no __call__; it is called as {kind.names[0]}({', '.join(kind.positional)})")
        self.parameters, self.takes_any_keyword = _check_arguments(made[cls], kind)
        self.function, self.is_coroutine = made[cls], inspect.iscoroutinefunction(cls.__call__)


class HookError(ValueError):
    """A name that leads to nothing that can be called as this hook is."""


def _conventional(module, kind, file):
    for name in kind.names:
        if hasattr(module, name):
            return getattr(module, name)
    raise HookError(f"{file} defines none of {', '.join(kind.names)}; or name one: {file}:my_name")


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
        raise HookError(f"is called with ({wanted}), but {error}; it is {signature}") from None
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
        raise HookError("a class is wanted, this is none" if kind.is_class else "a function is wanted, this is a class")
    if not callable(function):
        raise HookError(f"a function is wanted, this is {type(function).__name__}")
    missing = [name for name in kind.methods if not callable(getattr(function, name, None))]
    if missing:
        raise HookError(f"the class has no {', '.join(missing)}")
    if is_class and not kind.is_class:
        return Hook(kind_name, path, function)  # called once it is made
    parameters, any_keyword = _check_arguments(function, kind)
    call = function if inspect.isroutine(function) or kind.is_class else function.__call__
    return Hook(kind_name, path, function, inspect.iscoroutinefunction(call), parameters, any_keyword)


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

"""`args` as users' functions see it: the run's flags by their names with underscores, and whatever was set on it."""

import json
from argparse import Namespace

from slime.utils.eval_config import EvalDatasetConfig

__all__ = ["Arguments", "make_arguments"]


class Arguments(Namespace):
    """A Namespace that says what is missing in the user's words."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"args has no {name}: no flag --{name.replace('_', '-')}, no key of --custom-config-path")


# Functions that divide by a number of devices or engines meet the one engine that a run has.
_ONE = (
    "rollout_num_gpus",
    "rollout_num_gpus_per_engine",
    "rollout_num_engines",
    "actor_num_nodes",
    "actor_num_gpus_per_node",
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "sglang_dp_size",
)


# What functions for older versions of slime ask for.
_OF_OLDER_VERSIONS = {"use_http2": False, "rollout_num_gpus_per_node": 8}


def make_arguments(flags):
    arguments = Arguments(**{**_OF_OLDER_VERSIONS, **flags})
    for name in _ONE:
        if flags.get(name) is None:
            setattr(arguments, name, 1)
    if flags.get("expert_tensor_parallel_size") is None:  # Megatron's default
        arguments.expert_tensor_parallel_size = arguments.tensor_model_parallel_size
    template = flags.get("apply_chat_template_kwargs")
    if isinstance(template, str):
        arguments.apply_chat_template_kwargs = json.loads(template)
    paths = flags.get("prompt_data")
    if isinstance(paths, list) and len(paths) < 2:  # the original has one, or None
        arguments.prompt_data = paths[0] if paths else None
    arguments.rollout_global_dataset = not flags.get("disable_rollout_global_dataset")
    datasets = flags.get("eval_datasets") or []
    arguments.eval_datasets = [
        EvalDatasetConfig.from_dict(each) if isinstance(each, dict) else each for each in datasets
    ]
    return arguments

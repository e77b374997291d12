"""`args` as users' functions see it: the run's flags by their names with underscores, and whatever was set on it."""

from argparse import Namespace

from slime.utils.eval_config import EvalDatasetConfig

__all__ = ["Arguments", "make_arguments"]


class Arguments(Namespace):
    """A Namespace that says what is missing in the user's words."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"args has no {name}: no flag --{name.replace('_', '-')}, no key of --custom-config-path")


def make_arguments(flags):
    arguments = Arguments(**flags)
    datasets = flags.get("eval_datasets") or []
    arguments.eval_datasets = [
        EvalDatasetConfig.from_dict(each) if isinstance(each, dict) else each for each in datasets
    ]
    return arguments

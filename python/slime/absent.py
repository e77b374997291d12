"""Modules of THUDM/slime that have no counterpart here, each with what to use instead: importing one says so.

Of 5f78160, 0.3 and 0.4.0. What is not listed and not here was never a module of slime.
"""

import importlib.abc
import sys

__all__ = ["AbsentModules", "advice"]

_TRAINER = "the trainer is in the program; its hooks are in docs/plugins.md, \"Which functions run in the trainer?\""
_CONVERSION = "checkpoints are Hugging Face directories, read and written by the program; tools/ has the converters"
_ENGINES = "engines are started by the program; `get_model_url(args, name)` of slime.rollout.sglang_rollout is their address"
_RAY = "processes are placed and watched by the program; a function sees `args` and `data_source`"
_QUEUE = "the program's ledger is the durable queue: a function returns its samples, and nothing has to be published"
_RESUME = "the program saves and goes on: --load, --ckpt-step, `slime runs`"
_LOGS = "slime.observability.logging_utils.log(args, metrics) puts numbers into the run's log"
_MODEL = "models are written in C++ (docs/adding_a_family.md)"

# By name; a name stands for what is below it, too, unless that has a line of its own.
ABSENT = {
    "slime.alignment": _TRAINER,
    "slime.backends.megatron_utils": _TRAINER,
    "slime.backends.megatron_utils.checkpoint": _CONVERSION,
    "slime.backends.megatron_utils.hf_checkpoint_saver": _CONVERSION,
    "slime.backends.megatron_utils.hf_to_megatron": _CONVERSION,
    "slime.backends.megatron_utils.megatron_to_hf": _CONVERSION,
    "slime.backends.megatron_utils.server": "`slime serve` scores prompts: POST /generate with `logprob_start_len`",
    "slime.backends.sglang_utils": _ENGINES,
    "slime.data.batch_builder": "--custom-convert-samples-to-train-data-path and --custom-reward-post-process-path make the batch",
    "slime.data.checkpoint": _RESUME,
    "slime.data.codec": "samples are records: Sample.to_dict and Sample.from_dict; rollout files are JSON lines",
    "slime.observability.communication_timeline": "timeline.jsonl in the run's folder",
    "slime.observability.profile_utils": "--profile and `slime report`",
    "slime.observability.rollout_data_utils": "slime.data.archive.RolloutArchive reads and writes samples of a rollout",
    "slime.observability.tensorboard_utils": _LOGS,
    "slime.observability.train_data_utils": _TRAINER,
    "slime.observability.train_metric_utils": _LOGS,
    "slime.observability.wandb_utils": _LOGS,
    "slime.ray": _RAY,
    "slime.ray.buffer": "slime.data.data_source has the data sources",
    "slime.ray.training_recovery": _RESUME,
    "slime.rollout.forge_load": "--load-debug-rollout-data replays rollouts",
    "slime.rollout.fully_async_distributed": "`slime train-async` generates on all engines of a run",
    "slime.router": "`slime router` stands in front of several servers (docs/router.md)",
    "slime.utils.accelerator": "--device chooses, and torch.device of a tensor tells",
    "slime.utils.cleanup": "contextlib.ExitStack and AsyncExitStack",
    "slime.utils.debug_utils": "`slime dump`, `slime score` and `slime report` look at rollouts",
    "slime.utils.disk_delta": _TRAINER,
    "slime.utils.distributed_utils": _TRAINER,
    "slime.utils.dp_schedule": _TRAINER,
    "slime.utils.engine_group_wave": _ENGINES,
    "slime.utils.external_utils.typer_utils": "argparse, or the package typer itself",
    "slime.utils.flops_utils": "metrics.jsonl has perf/actor_train_tflops",
    "slime.utils.fp8_kernel": _TRAINER,
    "slime.utils.health_monitor": _ENGINES,
    "slime.utils.iter_utils": "slime.utils.misc.group_by",
    "slime.utils.megatron_bridge_utils": _CONVERSION,
    "slime.utils.memory_utils": "metrics.jsonl has the memory of each step",
    "slime.utils.profile_utils": "--profile and `slime report`",
    "slime.utils.reloadable_process_group": _TRAINER,
    "slime.utils.rocm_checkpoint_writer": _CONVERSION,
    "slime.utils.routing_replay": "--use-routing-replay and --use-rollout-routing-replay are the trainer's own",
    "slime.utils.seqlen_balancing": _TRAINER,
    "slime.utils.tensor_backper": _TRAINER,
    "slime.utils.tensorboard_utils": _LOGS,
    "slime.utils.tracking_utils": _LOGS,
    "slime.utils.train_dump_utils": "RUN_DIR/rollouts has tokens, masks, rewards and log-probs of what was trained",
    "slime.utils.train_metric_utils": _LOGS,
    "slime.utils.wandb_utils": _LOGS,
    "slime_plugins.mbridge": _CONVERSION,
    "slime_plugins.models": _MODEL,
}


def advice(name):
    """What to use in the place of a module; None for a name that slime never had."""
    while name:
        if name in ABSENT:
            return ABSENT[name]
        name = name.rpartition(".")[0]
    return None


class AbsentModules(importlib.abc.MetaPathFinder):
    """Asked last: for what no finder has found."""

    def find_spec(self, name, path=None, target=None):
        if not name.startswith(("slime.", "slime_plugins.")):
            return None
        instead = advice(name)
        if instead is None:
            return None
        raise ModuleNotFoundError(f"{name} of THUDM/slime is not here: {instead}", name=name)


def install():
    if not any(isinstance(each, AbsentModules) for each in sys.meta_path):
        sys.meta_path.append(AbsentModules())

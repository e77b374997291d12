"""Launchers in Python: `execute_train(train_args, num_gpus_per_node, ...)` runs `slime train` with a line of arguments."""

import datetime
import json
import os
import random
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from slime.program import find_program
from slime.utils.misc import exec_command

__all__ = ["ExecuteTrainConfig", "create_run_id", "exec_command", "execute_train", "get_bool_env_var", "rsync_simple"]

repo_base_dir = Path(__file__).resolve().parents[4]


@dataclass
class ExecuteTrainConfig:
    cuda_core_dump: bool = False
    num_nodes: int = int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
    extra_env_vars: str = ""  # a JSON object, or NAME=value words


def execute_train(
    train_args,
    num_gpus_per_node,
    megatron_model_type=None,
    train_script="train.py",
    before_ray_job_submit=None,
    extra_env_vars=None,
    config=None,
):
    """Runs the program until it ends; CalledProcessError when it fails. There is no cluster to be started and no process
    of others to be ended first. `train_args` is a piece of a shell's command line, `megatron_model_type` a file of
    scripts/models whose MODEL_ARGS come before it, "train_async.py" means `slime train-async`."""
    if before_ray_job_submit is not None:
        before_ray_job_submit()
    extra = _parse_extra_env_vars((config or ExecuteTrainConfig()).extra_env_vars)
    environment = {**os.environ, **{k: str(v) for k, v in {**(extra_env_vars or {}), **extra}.items()}}
    verb = "train-async" if Path(train_script).name == "train_async.py" else "train"
    source, model_args = "", ""
    if megatron_model_type is not None:
        source = f"source {shlex.quote(str(repo_base_dir / 'scripts' / 'models' / megatron_model_type))}.sh && "
        model_args = '"${MODEL_ARGS[@]}"'
    gpus = ""
    if num_gpus_per_node and "--actor-num-gpus-per-node" not in shlex.split(train_args):
        gpus = f"--actor-num-gpus-per-node {num_gpus_per_node}"
    line = " ".join(train_args.split("\n"))
    command = f"{source}exec {shlex.quote(find_program())} {verb} {model_args} {gpus} {line}"
    print(f"EXEC: {command}", flush=True)
    subprocess.run(["bash", "-c", command], check=True, env=environment)


def _parse_extra_env_vars(text):
    try:
        return json.loads(text)
    except ValueError:
        return dict(word.split("=", 1) for word in text.split())


def rsync_simple(path_src, path_dst):
    exec_command(f"mkdir -p {shlex.quote(path_dst)} && rsync -a {shlex.quote(path_src)}/ {shlex.quote(path_dst)}")


def hf_download_dataset(full_name):
    exec_command(f"hf download --repo-type dataset {full_name} --local-dir /root/datasets/{full_name.split('/')[1]}")


def convert_checkpoint(model_name, megatron_model_type, num_gpus_per_node, *args, **kwargs):
    """Nothing: the program reads the checkpoint of Hugging Face as it is."""


def fp8_cast_bf16(path_src, path_dst):
    raise NotImplementedError("the program reads a checkpoint as it is; give --hf-checkpoint one in bfloat16")


def check_has_nvlink():
    output = exec_command("nvidia-smi topo -m 2>/dev/null | grep -c 'NV[0-9]' || true", capture_output=True)
    return int(output or 0) > 0


def get_default_wandb_args(test_file, run_name_prefix=None, run_id=None):
    """Flags of Weights & Biases for a launcher; none without its key in the environment."""
    if not os.environ.get("WANDB_API_KEY"):
        return ""
    file = Path(test_file)
    name = file.stem if len(file.stem) >= 6 else f"{file.parent.name}_{file.stem}"
    group = "_".join(each for each in (run_name_prefix, run_id or create_run_id()) if each)
    return f"--use-wandb --wandb-project slime-{name} --wandb-group {group} --disable-wandb-random-suffix "


def create_run_id():
    now = datetime.datetime.now(datetime.timezone.utc)
    return f"{now:%y%m%d-%H%M%S}-{random.Random().randint(0, 999):03d}"


def get_bool_env_var(name, default="false"):
    """Whether a variable is "true" or "1"."""
    return os.environ.get(name, default).strip().lower() in ("true", "1")


def get_env_enable_infinite_run():
    return get_bool_env_var("SLIME_TEST_ENABLE_INFINITE_RUN")


def save_to_temp_file(text, ext):
    """The path of a new file that holds `text`."""
    with tempfile.NamedTemporaryFile("w", suffix=f".{ext}", prefix="slime_", delete=False) as file:
        file.write(text)
    return file.name


NUM_GPUS_OF_HARDWARE = {"H100": 8, "GB200": 4, "GB300": 4}

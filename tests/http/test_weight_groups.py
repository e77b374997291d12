"""Weights for servers of several ranks, and through groups of torch.distributed whose rank 0 is PyTorch: those are skipped without it.
SLIME_TORCH_PYTHON names an interpreter that has it."""

import functools
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from naming_model import HIDDEN, LABELS, VOCAB, head_update, make_naming_model
from server_process import Server
from visible_gpus import num_gpus

PYTHON = os.environ.get("SLIME_TORCH_PYTHON", sys.executable)


@functools.cache
def why_no_torch() -> str:
    ask = "import torch.distributed; print(torch.__version__.split('.')[0])"
    done = subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return "no PyTorch here"
    return "" if int(done.stdout) >= 2 else "stores of PyTorch 1 speak another protocol"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def flags_on(device: str) -> list[str]:
    on_gpu = ["--dtype", "bfloat16", "--max-total-tokens", "4096"]
    return ["--skip-tokenizer-init", "--device", device, *(on_gpu if device == "cuda" else ["--dtype", "float32"])]


def model_for(device: str, folder: Path) -> str:
    return str(make_naming_model(folder / "model", groups=2, head_dim=128 if device == "cuda" else 32))


def skip_without_gpus(device: str):
    if device == "cuda" and num_gpus() < 2:
        pytest.skip("needs two GPUs")


def expect_version(server, version: int):
    status, reply = server.post("/generate", {"input_ids": [40, 41], "sampling_params": {"temperature": 0, "max_new_tokens": 4}})
    assert status == 200, reply
    assert reply["output_ids"] == [version % LABELS] * 4 and reply["meta_info"]["weight_version"] == f"v{version}"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_two_ranks_take_tensors_and_switch_in_one_step(device, tmp_path):
    skip_without_gpus(device)
    with Server(model_for(device, tmp_path), *flags_on(device), "--tp-size", "2", "--weight-version", "v0") as server:
        for version in range(1, 9):
            stream = server.frames("/generate", {"input_ids": [40], "stream": True, "sampling_params": {"temperature": 0, "max_new_tokens": 400}})
            next(stream)
            update = {"serialized_named_tensors": [head_update(version)] * (1 + version % 2), "weight_version": f"v{version}"}
            status, reply = server.post("/update_weights_from_tensor", update)
            assert status == 200, reply
            for last in stream:
                pass
            ids, meta = last["output_ids"], last["meta_info"]
            runs = meta.get("weight_version_runs", [[meta["weight_version"], len(ids)]])
            assert [name for name, length in runs for _ in range(length)] == [f"v{token}" for token in ids] and len(ids) == 400
            expect_version(server, version)
        # A bucket that cannot be taken changes no rank.
        status, reply = server.post("/update_weights_from_tensor", {"serialized_named_tensors": ["AAAA"], "weight_version": "x"})
        assert status == 400, reply
        expect_version(server, 8)


@pytest.mark.parametrize(("backend", "ranks"), [("gloo", 1), ("gloo", 2), ("nccl", 1)])
def test_a_trainer_of_pytorch_broadcasts_weights(backend, ranks, tmp_path):
    if why_no_torch():
        pytest.skip(why_no_torch())
    device = "cuda" if backend == "nccl" else "cpu"
    skip_without_gpus(device)
    port, versions = free_port(), [5, 6, 7]
    words = [PYTHON, str(Path(__file__).with_name("torch_trainer.py")), backend, str(port), str(1 + ranks), *map(str, versions)]
    second_gpu = {"CUDA_VISIBLE_DEVICES": "1"} if device == "cuda" else None
    with Server(model_for(device, tmp_path), *flags_on(device), "--tp-size", str(ranks), env=second_gpu) as server:
        trainer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": "0"})
        group = {"master_address": "127.0.0.1", "master_port": port, "rank_offset": 1, "world_size": 1 + ranks, "group_name": "weights"}
        status, reply = server.post("/init_weights_update_group", {**group, "backend": backend})
        assert status == 200, reply
        for version in versions:
            update = {"names": ["lm_head.weight"], "dtypes": ["bfloat16"], "shapes": [[VOCAB, HIDDEN]], "group_name": "weights"}
            if version == versions[-1]:
                update["load_format"] = "flattened_bucket"
            status, reply = server.post("/update_weights_from_distributed", {**update, "weight_version": f"v{version}"})
            assert status == 200, reply
            expect_version(server, version)
        assert trainer.communicate(timeout=60)[0] == "sent\n" and trainer.returncode == 0
        status, reply = server.post("/destroy_weights_update_group", {"group_name": "weights"})
        assert status == 200, reply

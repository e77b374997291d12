"""A trainer that is PyTorch: `python torch_trainer.py BACKEND PORT WORLD_SIZE VERSION...` is rank 0 of a group and broadcasts the naming
model's head of each version, the last one as a bucket of bytes. The group is made as the original's trainers make theirs."""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from naming_model import head_of
from torch.distributed.distributed_c10d import PrefixStore, _new_process_group_helper

NAME = "weights"


def make_group(backend: str, port: int, world_size: int):
    timeout = timedelta(seconds=120)
    store, rank, size = next(dist.rendezvous(f"tcp://127.0.0.1:{port}", 0, world_size, timeout=timeout))
    store.set_timeout(timeout)
    group, _ = _new_process_group_helper(size, rank, [], dist.Backend(backend), PrefixStore(NAME, store), group_name=NAME, timeout=timeout)
    return group


def main():
    backend, (port, world_size, *versions) = sys.argv[1], map(int, sys.argv[2:])
    device = "cuda:0" if backend == "nccl" else "cpu"
    if backend == "nccl":
        torch.cuda.set_device(0)
    group = make_group(backend, port, world_size)
    options = dist.BroadcastOptions()
    options.rootRank = 0
    for version in versions:
        shape, numbers = head_of(version)
        head = torch.tensor(list(numbers), device=device).reshape(shape).bfloat16()
        tensor = head.view(torch.uint8).flatten() if version == versions[-1] else head
        group.broadcast([tensor], options).wait()
    if backend == "nccl":
        torch.cuda.synchronize()
    print("sent", flush=True)


if __name__ == "__main__":
    main()

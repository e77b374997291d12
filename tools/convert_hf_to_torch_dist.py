#!/usr/bin/env python3
"""Converts a Hugging Face model directory to a checkpoint that Megatron-LM loads (torch_dist).

    pip install torch
    python3 tools/convert_hf_to_torch_dist.py --hf-checkpoint MODEL --save OUT

Writes OUT/release and OUT/latest_checkpointed_iteration.txt, weights alone: Megatron-LM loads them with --dist-ckpt-strictness ignore_all
--no-load-optim --no-load-rng. It runs in one process on the CPU, and a stacked weight (all layers of one
kind) is in memory at once. Flags of Megatron's that published commands pass are accepted: the sizes are those of config.json.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from slime.checkpoints.megatron_names import Names  # noqa: E402
from slime.checkpoints.safetensors_file import ModelDirectory  # noqa: E402
from slime.checkpoints.torch_pickle import BadFile  # noqa: E402


def joined(how, names, tensors, own_names):
    """Megatron's weight of Hugging Face's, laid together by rows."""
    import torch

    if how == "whole":
        return tensors(names[0])
    parts = [tensors(name) for name in names]
    result = torch.empty((sum(len(part) for part in parts), *parts[0].shape[1:]), dtype=parts[0].dtype)
    for part, rows in zip(parts, own_names.rows(how, len(result))):
        at = 0
        for begin, end in rows:
            result[begin:end] = part[at : at + end - begin]
            at += end - begin
    return result


def stacked(weights, names):
    """Layers of one kind under one name with a leading axis, as Megatron has them where all layers are alike; experts always."""
    import re

    import torch

    experts = {}
    for name in [each for each in weights if ".experts.experts." in each]:
        head, number, tail = re.fullmatch(r"(.+\.experts\.experts)\.(\d+)\.(.+)", name).groups()
        experts.setdefault(f"{head}.{tail}", {})[int(number)] = weights.pop(name)
    for name, each in experts.items():
        weights[name] = torch.stack([each[i] for i in range(len(each))])
    if 0 < names.first_dense < names.layers:
        return weights
    whole = {}
    for name in list(weights):
        match = re.fullmatch(r"decoder\.layers\.(\d+)\.(.+)", name)
        if match:
            whole.setdefault(f"decoder.layers.{match[2]}", {})[int(match[1])] = weights.pop(name)
    for name in list(whole):
        each = whole.pop(name)
        if len(each) != names.layers:
            raise BadFile(f"{name}: only {len(each)} of {names.layers} layers have it")
        weights[name] = torch.stack([each[i] for i in range(names.layers)])
    return weights


def convert(args):
    try:
        import torch
        import torch.distributed.checkpoint as dist_cp
    except ImportError:
        raise BadFile("needs the package torch: pip install torch") from None
    config_file = args.hf_checkpoint / "config.json"
    if not config_file.exists():
        raise BadFile(f"--hf-checkpoint {args.hf_checkpoint}: has no config.json")
    names = Names(json.loads(config_file.read_text()))
    model = ModelDirectory(args.hf_checkpoint)
    if not model.tensors:
        raise BadFile(f"--hf-checkpoint {args.hf_checkpoint}: has no safetensors")
    types = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}

    def tensor(name):
        dtype, shape, data = model.tensors[name]
        if dtype not in types:
            raise BadFile(f"{name}: {dtype} weights are not converted; give a directory in bfloat16")
        return torch.frombuffer(bytearray(data), dtype=types[dtype]).reshape(shape)

    found, left = names.megatron_names(model.tensors)
    if left:
        raise BadFile(f"{args.hf_checkpoint}: tensors that the table does not know: {', '.join(left[:8])}{' ...' if len(left) > 8 else ''}")
    weights = {name: joined(how, of, tensor, names) for name, (how, of) in found.items()}
    rows = args.padded_vocab_size or -(-names.vocabulary // args.make_vocab_size_divisible_by) * args.make_vocab_size_divisible_by
    for name in ("embedding.word_embeddings.weight", "output_layer.weight"):
        if name in weights and len(weights[name]) < rows:
            weights[name] = torch.cat([weights[name], weights[name].new_zeros((rows - len(weights[name]), weights[name].shape[1]))])
    weights = stacked(weights, names)
    folder = args.save / "release"
    folder.mkdir(parents=True)
    dist_cp.save(weights, storage_writer=dist_cp.FileSystemWriter(folder, thread_count=1), no_dist=True)
    torch.save({"iteration": 0, "checkpoint_version": 3.0}, folder / "common.pt")
    (folder / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1}))
    (args.save / "latest_checkpointed_iteration.txt").write_text("release")
    print(f"{folder}: {len(weights)} weights of {len(model.tensors)} tensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hf-checkpoint", type=Path, required=True)
    parser.add_argument("--save", type=Path, required=True, help="a folder that is not there yet, or is empty")
    parser.add_argument("--make-vocab-size-divisible-by", type=int, default=128, help="rows of the embeddings are padded to a multiple")
    parser.add_argument("--padded-vocab-size", type=int)
    args, others = parser.parse_known_args()
    if others:
        print(f"not needed, config.json says it: {' '.join(word for word in others if word.startswith('--'))}")
    if args.save.exists() and any(args.save.iterdir()):
        sys.exit(f"--save {args.save}: has files; give another folder")
    try:
        convert(args)
    except (BadFile, OSError, json.JSONDecodeError) as error:
        sys.exit(f"convert_hf_to_torch_dist.py: {error}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Converts a checkpoint of Megatron-LM (torch_dist) to a Hugging Face model directory.

    python3 tools/convert_torch_dist_to_hf.py --input-dir RUN/iter_0000100 --output-dir OUT --origin-hf-dir MODEL

Needs no packages: files are read without torch, and nothing in them is run. MODEL has config.json, which says the family and the
sizes, and the tokenizer; both are copied. --input-dir may also be the folder that holds the iterations. Weights are written
tensor by tensor; optimizer states are left out.
"""

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from slime.checkpoints.megatron_names import Names  # noqa: E402
from slime.checkpoints.safetensors_file import ModelDirectory, write_model  # noqa: E402
from slime.checkpoints.torch_dist import TorchDist  # noqa: E402
from slime.checkpoints.torch_pickle import BadFile, SIZES  # noqa: E402


def in_order(name):
    return [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", name)]


class Reader:
    """The bytes of parts. What was read last is kept: several parts are in one."""

    def __init__(self, source):
        self._source, self._last, self._data = source, None, None

    def read(self, part):
        if self._last != (part.name, part.prefix):
            self._data, self._last = self._source.read(part.name, part.prefix), (part.name, part.prefix)
        row = SIZES[part.dtype]
        for length in part.shape[1:]:
            row *= length
        view = memoryview(self._data)
        if len(part.rows) == 1:
            return view[part.rows[0][0] * row : part.rows[0][1] * row]
        return b"".join(view[begin * row : end * row] for begin, end in part.rows)


def convert(args):
    origin = args.origin_hf_dir
    if not (origin / "config.json").exists():
        raise BadFile(f"--origin-hf-dir {origin}: has no config.json, which says the family and the sizes of the model")
    source = TorchDist(args.input_dir)
    config = json.loads((origin / "config.json").read_text())
    names = Names(config)
    if args.vocab_size:
        names.vocabulary = args.vocab_size
    parts, unknown = names.parts(source.tensors)
    if unknown:
        raise BadFile(f"{source.folder}: weights that the table does not know: {', '.join(unknown[:8])}{' ...' if len(unknown) > 8 else ''}")
    by_name = {part.hf_name: part for part in parts}
    tensors = {name: (part.dtype, part.shape) for name, part in by_name.items()}
    own = ModelDirectory(origin) if any(origin.glob("*.safetensors")) else None
    missing = sorted(set(own.tensors) - set(tensors), key=in_order) if own else []
    if missing and not args.add_missing_from_origin_hf:
        print(f"not in the checkpoint, {len(missing)} tensors of {origin}: {', '.join(missing[:4])} ... (-a takes them from there)")
        missing = []
    for name in missing:
        tensors[name] = own.tensors[name][:2]
    if own:
        for name in sorted(set(own.tensors) & set(tensors)):
            if tuple(own.tensors[name][1]) != tuple(tensors[name][1]):
                raise BadFile(f"{name}: {tuple(tensors[name][1])} in the checkpoint, {own.tensors[name][1]} in {origin}")
    if not {"model.embed_tokens.weight", "model.norm.weight"} <= set(tensors) or not (names.ties or "lm_head.weight" in tensors):
        raise BadFile(f"{source.folder}: lacks embeddings, final norm or output layer")
    args.output_dir.mkdir(parents=True, exist_ok=True)
    reader = Reader(source)
    order = [(name, *tensors[name]) for name in sorted(tensors, key=in_order)]
    taken = {name: own.tensors[name][2] for name in missing}
    write_model(args.output_dir, order, lambda name: taken[name] if name in taken else reader.read(by_name[name]), args.chunk_size)
    for path in sorted(origin.iterdir()):
        if path.is_file() and path.suffix != ".safetensors" and path.name != "model.safetensors.index.json":
            shutil.copy(path, args.output_dir / path.name)
    print(f"{args.output_dir}: {len(order)} tensors from {source.folder}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input-dir", type=Path, required=True, help="the checkpoint, or the folder of checkpoints")
    parser.add_argument("--output-dir", type=Path, required=True, help="the model directory to write")
    parser.add_argument("--origin-hf-dir", type=Path, required=True, help="model directory with config.json and the tokenizer")
    parser.add_argument("--model-name", help="not needed: config.json says the family")
    parser.add_argument("--vocab-size", type=int, help="rows of the embeddings that are tokens; default: of config.json")
    parser.add_argument("--chunk-size", type=int, default=5 << 30, help="most bytes of a file (default: 5 GiB)")
    parser.add_argument("-f", "--force", action="store_true", help="write into a folder that has files")
    parser.add_argument("-a", "--add-missing-from-origin-hf", action="store_true", help="take weights that the checkpoint lacks from there")
    args = parser.parse_args()
    if args.output_dir.exists() and any(args.output_dir.iterdir()) and not args.force:
        sys.exit(f"--output-dir {args.output_dir}: has files; give another, or --force to write into it")
    try:
        convert(args)
    except (BadFile, OSError, json.JSONDecodeError) as error:
        sys.exit(f"convert_torch_dist_to_hf.py: {error}")


if __name__ == "__main__":
    main()

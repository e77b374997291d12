"""Rollout dumps of the original (.pt, a torch.save file) as JSON lines, and back. Neither direction needs torch.

    python3 -m slime.checkpoints.rollout_dump rollout_7.pt rollout_7.jsonl
    python3 -m slime.checkpoints.rollout_dump rollout_7.jsonl rollout_7.pt
"""

import base64
import io
import json
import math
import pickle
import re
import struct
import sys
import zipfile
from pathlib import Path

from slime.checkpoints.torch_pickle import BadFile, Record, Tensor, load

FORMATS = {"F32": "f", "F64": "d", "I64": "q", "I32": "i", "I16": "h", "I8": "b", "U8": "B", "BOOL": "?", "F16": "e"}
NUMPY = {"f4": "f", "f8": "d", "f2": "e", "i8": "q", "i4": "i", "i2": "h", "i1": "b", "u1": "B", "b1": "?"}
DROPPED = ("multimodal_inputs", "multimodal_train_inputs", "prefix_cache_info", "train_metadata", "session_id")


def plain(value, where):
    """The value with tensors and arrays as lists. Throws BadFile for an object of a class."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(each, f"{where}.{key}") for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each, where) for each in value]
    if isinstance(value, Tensor):
        return _nested(_numbers(value.dtype, value.data, where), value.shape)
    if isinstance(value, Record) and value.name == "_reconstruct" and isinstance(value.state, tuple):
        _version, shape, dtype, is_fortran, data = value.state
        if is_fortran or not isinstance(data, (bytes, str)):
            raise BadFile(f"{where}: an array that is not stored row by row")
        return _nested(_unpack(_numpy_format(dtype, where), data if isinstance(data, bytes) else data.encode("latin1")), shape)
    if isinstance(value, Record) and value.name == "scalar":
        return _unpack(_numpy_format(value.args[0], where), value.args[1])[0]
    raise BadFile(f"{where}: holds an object of a class ({getattr(value, 'module', type(value).__module__)}), which is not read")


def _numpy_format(dtype, where):
    kind = dtype.args[0] if isinstance(dtype, Record) and dtype.args else None
    if kind not in NUMPY:
        raise BadFile(f"{where}: numbers of the type {kind!r}")
    return NUMPY[kind]


def _unpack(letter, data):
    return list(struct.unpack(f"<{len(data) // struct.calcsize(letter)}{letter}", data))


def _numbers(dtype, data, where):
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + bytes(data[i : i + 2]))[0] for i in range(0, len(data), 2)]
    if dtype not in FORMATS:
        raise BadFile(f"{where}: numbers of the type {dtype}")
    return _unpack(FORMATS[dtype], data)


def _nested(values, shape):
    for length in reversed(shape[1:]):
        values = [values[i : i + length] for i in range(0, len(values), length)] if length else []
    return values[0] if not shape and values else values


def read_pt(path):
    """(rollout id, samples as slime's JSON lines have them). Throws BadFile."""
    content = load(path)
    samples = content.get("samples") if isinstance(content, dict) else content
    if not isinstance(samples, list) or not samples:
        raise BadFile(f"{path}: is no rollout dump: a map with a list `samples` is wanted")
    lines = []
    for number, sample in enumerate(samples):
        if not isinstance(sample, dict):
            raise BadFile(f"{path}: sample {number} is no map")
        lines.append(_line(plain(sample, f"{path}: sample {number}"), number))
    return (content.get("rollout_id") or 0) if isinstance(content, dict) else 0, lines


def _line(sample, number):
    line = {key: value for key, value in sample.items() if key not in DROPPED and value is not None}
    line.setdefault("index", number)
    if line.get("group_index") is None:
        line["group_index"] = line["index"]
    if not any((line.get("spec_info") or {}).values()):
        line.pop("spec_info", None)
    cached = sample.get("prefix_cache_info") or {}
    line["cached_tokens"], line["total_prompt_tokens"] = cached.get("cached_tokens", 0), cached.get("total_prompt_tokens", 0)
    length = line.get("response_length", 0)
    versions = [int(each) for each in line.pop("weight_versions", []) if str(each).isdigit()]
    line["weight_versions"] = [[versions[-1], length]] if versions and length else []
    experts = line.pop("rollout_routed_experts", None)
    if experts:
        flat = _flat(experts)
        line["rollout_routed_experts"] = base64.b64encode(struct.pack(f"<{len(flat)}h", *flat)).decode()
    return line


def _flat(value):
    return [number for each in value for number in _flat(each)] if isinstance(value, list) else [value]


def write_pt(path, rollout_id, lines):
    """A file that torch.load reads: {"rollout_id", "samples"}, as the original's --load-debug-rollout-data wants it."""
    samples = []
    for line in lines:
        sample = {key: value for key, value in line.items() if key not in ("train_log_probs", "token_texts", "user_fields")}
        sample["weight_versions"] = [str(version) for version, _count in sample.get("weight_versions") or []]
        sample.pop("rollout_routed_experts", None)
        sample["prefix_cache_info"] = {
            "cached_tokens": sample.pop("cached_tokens", 0),
            "total_prompt_tokens": sample.pop("total_prompt_tokens", 0),
        }
        sample.setdefault("spec_info", {})
        sample.setdefault("loss_mask", None)
        samples.append(sample)
    data = io.BytesIO()
    pickle.dump({"rollout_id": rollout_id, "samples": samples}, data, protocol=2)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in (("data.pkl", data.getvalue()), ("byteorder", b"little"), ("version", b"3\n")):
            archive.writestr(zipfile.ZipInfo(f"{Path(path).stem}/{name}"), content)


def convert(source, target):
    if str(target).endswith(".pt"):
        with open(source, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.strip()]
        if not lines or not all(isinstance(line, dict) for line in lines):
            raise BadFile(f"{source}: no JSON lines of samples")
        numbers = re.findall(r"\d+", Path(source).stem)
        write_pt(target, int(numbers[-1]) if numbers else 0, lines)
        return len(lines)
    _rollout_id, lines = read_pt(source)
    with open(target, "w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(_finite(line), ensure_ascii=False) + "\n")
    return len(lines)


def _finite(value):
    """Numbers that are not finite as slime writes them: 1e99999."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else (1.7976931348623157e308 if value > 0 else -1.7976931348623157e308)
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list) else value


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: rollout_dump FILE.pt FILE.jsonl, or FILE.jsonl FILE.pt")
    try:
        count = convert(sys.argv[1], sys.argv[2])
    except (BadFile, OSError, ValueError) as error:
        sys.exit(f"rollout_dump: {error}")
    print(f"{sys.argv[2]}: {count} samples")


if __name__ == "__main__":
    main()

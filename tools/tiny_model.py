#!/usr/bin/env python3
"""Creates a small untrained model directory in Hugging Face form, with nothing but Python's own library.

    python3 tools/tiny_model.py OUT_DIR [--hidden 64] [--layers 2] [--experts 0] [--latent 0] [--delta]
                                        [--seed 1] [--words WORD...] [--chat-template FILE]

The network is a Qwen3, with --experts a Qwen3-MoE of which each token visits two experts of a layer, with --latent a DeepSeek-V3 whose latents have that
size, with --delta a Qwen3.5 (with --experts a Qwen3-Next) whose last layer of each four is attention and the others gated delta nets; its tokenizer knows the 256 bytes, the marks of a conversation, `\\boxed{` and --words, so that every text can be
written. Weights are float32: matrices normal(0, 0.02), norms 1, biases 0; convolutions uniform in (-0.5, 0.5), states forget at rates up to 16. The files are the same on every machine.
"""

import argparse
import array
import json
import math
import random
import struct
import sys
from pathlib import Path

# The marks of ChatML, and the names of the speakers as one token each.
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SPEAKERS = ["system", "user", "assistant"]
WORDS = ["\\boxed{"]  # the opening of a final answer
ADDED = MARKS + SPEAKERS + WORDS
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def byte_characters() -> list[str]:
    """The printable character that stands for each byte in a byte-level vocabulary (as GPT-2 assigned them)."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    characters, spare = [], 0x100
    for byte in range(256):
        if byte in visible:
            characters.append(chr(byte))
        else:
            characters.append(chr(spare))
            spare += 1
    return characters


def tokenizer(words: list[str]) -> dict:
    vocabulary = {character: index for index, character in enumerate(byte_characters())}
    added = [
        {
            "id": 256 + index,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": content in MARKS,
        }
        for index, content in enumerate(ADDED + words)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None}
    model |= {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": model | {"vocab": vocabulary, "merges": []},
    }


def config(hidden: int, layers: int, words: int = 0) -> dict:
    head_dim = 32
    heads = max(1, hidden // head_dim)
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": 256 + len(ADDED) + words,
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": max(1, heads // 2),
        "head_dim": head_dim,
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": layers,
        "rope_scaling": None,
        "initializer_range": 0.02,
        "bos_token_id": None,
        "eos_token_id": 256 + MARKS.index("<|im_end|>"),
        "pad_token_id": 256 + MARKS.index("<|endoftext|>"),
        "torch_dtype": "float32",
        "use_cache": True,
    }


def with_experts(shape: dict, experts: int) -> dict:
    """As many numbers a token is multiplied with as in the dense model: two experts, each half as wide."""
    return shape | {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": experts,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": shape["intermediate_size"] // 2,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "router_aux_loss_coef": 0.0,
    }


def with_latent(shape: dict, latent: int, experts: int) -> dict:
    """Latent attention in every layer; experts beside a shared one, or dense layers as before."""
    kept = {key: value for key, value in shape.items() if "window" not in key and "num_experts" not in key}
    return kept | {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_key_value_heads": shape["num_attention_heads"],
        "q_lora_rank": None,
        "kv_lora_rank": latent,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 32,
        "head_dim": 16,
        "rope_interleave": True,
        "first_k_dense_replace": 0 if experts else shape["num_hidden_layers"],
        "n_routed_experts": max(experts, 2),
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": shape["intermediate_size"] // 2,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "n_group": 1,
        "topk_group": 1,
        "num_nextn_predict_layers": 0,
    }


def with_delta(shape: dict, experts: int) -> dict:
    """Gated delta nets and, every fourth layer or as the last one, attention with a gated output."""
    kept = {key: value for key, value in shape.items() if "window" not in key and key not in ("rope_theta", "rope_scaling")}
    layers, heads = shape["num_hidden_layers"], shape["num_attention_heads"]
    interval = min(4, layers)
    kept |= {
        "architectures": ["Qwen3NextForCausalLM" if experts else "Qwen3_5ForCausalLM"],
        "model_type": "qwen3_next" if experts else "qwen3_5_text",
        "layer_types": ["linear_attention" if (layer + 1) % interval else "full_attention" for layer in range(layers)],
        "linear_num_key_heads": heads,
        "linear_num_value_heads": heads,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    }
    return kept | {"shared_expert_intermediate_size": shape["intermediate_size"] // 2} if experts else kept | {"attn_output_gate": True}


def feed_forward_shapes(shape: dict) -> dict[str, list[int]]:
    hidden = shape["hidden_size"]

    def gated(prefix: str, width: int) -> dict[str, list[int]]:
        return {f"{prefix}.gate_proj": [width, hidden], f"{prefix}.up_proj": [width, hidden], f"{prefix}.down_proj": [hidden, width]}

    is_latent = "kv_lora_rank" in shape
    experts = shape.get("n_routed_experts" if is_latent else "num_experts", 0)
    if experts == 0 or shape.get("first_k_dense_replace", 0) > 0:
        return gated("mlp", shape["intermediate_size"])
    width = shape["moe_intermediate_size"]
    parts = {"mlp.gate": [experts, hidden]}
    for expert in range(experts):
        parts |= gated(f"mlp.experts.{expert}", width)
    if "shared_expert_intermediate_size" in shape:
        parts |= gated("mlp.shared_expert", shape["shared_expert_intermediate_size"]) | {"mlp.shared_expert_gate": [1, hidden]}
    if is_latent:
        parts |= {"mlp.gate.e_score_correction_bias": [experts]} | gated("mlp.shared_experts", width)
    return parts


def attention_shapes(shape: dict) -> dict[str, list[int]]:
    hidden, head_dim, heads = shape["hidden_size"], shape["head_dim"], shape["num_attention_heads"]
    if "kv_lora_rank" not in shape:
        q_rows, kv_rows = heads * head_dim, shape["num_key_value_heads"] * head_dim
        gates = q_rows if "linear_num_key_heads" in shape else 0
        return {
            "self_attn.q_proj": [q_rows + gates, hidden],
            "self_attn.k_proj": [kv_rows, hidden],
            "self_attn.v_proj": [kv_rows, hidden],
            "self_attn.o_proj": [hidden, q_rows],
            "self_attn.q_norm": [head_dim],
            "self_attn.k_norm": [head_dim],
        }
    latent, plain, rotary, value = (shape[name] for name in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    return {
        "self_attn.q_proj": [heads * (plain + rotary), hidden],
        "self_attn.kv_a_proj_with_mqa": [latent + rotary, hidden],
        "self_attn.kv_a_layernorm": [latent],
        "self_attn.kv_b_proj": [heads * (plain + value), latent],
        "self_attn.o_proj": [hidden, heads * value],
    }


def delta_shapes(shape: dict) -> dict[str, list[int]]:
    hidden, heads, value = shape["hidden_size"], shape["linear_num_value_heads"], shape["linear_value_head_dim"]
    keys, values = shape["linear_num_key_heads"] * shape["linear_key_head_dim"], heads * value
    parts = {"dt_bias": [heads], "A_log": [heads], "conv1d": [2 * keys + values, 1, shape["linear_conv_kernel_dim"]]}
    if shape["model_type"] == "qwen3_next":
        parts |= {"in_proj_qkvz": [2 * keys + 2 * values, hidden], "in_proj_ba": [2 * heads, hidden]}
    else:
        parts |= {"in_proj_qkv": [2 * keys + values, hidden], "in_proj_z": [values, hidden]}
        parts |= {"in_proj_b": [heads, hidden], "in_proj_a": [heads, hidden]}
    parts |= {"norm": [value], "out_proj": [hidden, values]}
    return {f"linear_attn.{name}": part for name, part in parts.items()}


def tensor_shapes(shape: dict) -> dict[str, list[int]]:
    hidden = shape["hidden_size"]
    shapes = {"model.embed_tokens.weight": [shape["vocab_size"], hidden]}
    for layer in range(shape["num_hidden_layers"]):
        is_delta = shape.get("layer_types", [])[layer : layer + 1] == ["linear_attention"]
        parts = {"input_layernorm": [hidden]} | (delta_shapes(shape) if is_delta else attention_shapes(shape))
        parts |= {"post_attention_layernorm": [hidden]} | feed_forward_shapes(shape)
        for name, part in parts.items():
            tail = "" if name.endswith(("_bias", "A_log")) else ".weight"
            shapes[f"model.layers.{layer}.{name}{tail}"] = part
    return shapes | {"model.norm.weight": [hidden]}


def fresh_value(name: str, shape: list[int], norms_add_one: bool, rng: random.Random, spread: float | None) -> float:
    """Of matrices: of `spread`, or such that each keeps the size of what it multiplies; the embedding 0.02 in any case."""
    if name.endswith("A_log"):
        return math.log(16 * (1 - rng.random()))
    if len(shape) == 3:
        return rng.random() - 0.5
    if len(shape) == 2:
        return rng.gauss(0.0, 0.02 if "embed" in name else spread or shape[-1] ** -0.5)
    if name.endswith("dt_bias") or ".linear_attn." in name:
        return 1.0
    return 0.0 if norms_add_one or name.endswith("_bias") else 1.0


def write_weights(path: Path, shapes: dict[str, list[int]], norms_add_one: bool, seed: int, spread: float | None) -> int:
    rng = random.Random(seed)
    header, pieces, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, shape in shapes.items():
        count = math.prod(shape)
        values = array.array("f", (fresh_value(name, shape, norms_add_one, rng, spread) for _ in range(count)))
        if sys.byteorder == "big":
            values.byteswap()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + 4 * count]}
        pieces.append(values.tobytes())
        offset += 4 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(pieces))
    return offset // 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--hidden", type=int, default=64, help="a multiple of 64")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--experts", type=int, default=0, help="in each layer; 0: dense layers")
    parser.add_argument("--latent", type=int, default=0, help="size of the latents of attention; 0: none")
    parser.add_argument("--delta", action="store_true", help="gated delta nets, attention in one layer of four")
    parser.add_argument("--words", nargs="*", default=[], help="more words of one token each")
    parser.add_argument("--chat-template", type=Path, help="file of one's own, in the place of ChatML")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.hidden < 64 or args.hidden % 64:
        parser.error(f"--hidden {args.hidden}: should be a multiple of 64, the width of two heads")
    if args.experts < 0 or args.experts == 1:
        parser.error(f"--experts {args.experts}: should be 0, or at least the 2 that a token visits")
    if args.latent < 0:
        parser.error(f"--latent {args.latent}: should be 0, or the size of a latent")
    if args.latent and args.delta:
        parser.error("--latent and --delta: one kind of layers at a time")
    args.out_dir.mkdir(parents=True, exist_ok=True)

    def write(name: str, content: dict) -> None:
        (args.out_dir / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    shape = config(args.hidden, args.layers, len(args.words))
    if args.experts:
        shape = with_experts(shape, args.experts)
    if args.latent:
        shape = with_latent(shape, args.latent, args.experts)
    if args.delta:
        shape = with_delta(shape, args.experts)
    write("config.json", shape)
    write("generation_config.json", {key: shape[key] for key in ("eos_token_id", "pad_token_id")})
    write("tokenizer.json", tokenizer(args.words))
    specials = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    template = args.chat_template.read_text(encoding="utf-8") if args.chat_template else CHAT_TEMPLATE
    write("tokenizer_config.json", specials | {"model_max_length": 512, "chat_template": template})
    # Norms of queries and keys make up for small matrices; latent attention has none.
    spread = None if args.latent else 0.02
    count = write_weights(args.out_dir / "model.safetensors", tensor_shapes(shape), args.delta, args.seed, spread)
    if args.delta:
        kind = "Qwen3-Next" if args.experts else "Qwen3.5"
    else:
        kind = "DeepSeek-V3" if args.latent else "Qwen3-MoE" if args.experts else "Qwen3"
    if args.experts:
        kind += f" of {args.experts} experts"
    print(f"{args.out_dir}: {kind} with {count:,} parameters, untrained")


if __name__ == "__main__":
    main()

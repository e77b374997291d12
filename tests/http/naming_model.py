"""A tiny Qwen3 that says which weights drew: with the head of version v the likeliest token is always v % LABELS, and no other has a
chance. Attention and MLP write nothing, so the rest of the weights is the same in all versions."""

import array
import base64
import json
import struct
from pathlib import Path

VOCAB, HIDDEN, LABELS = 64, 64, 32
SHARP = 60.0


def safetensors(tensors: dict[str, tuple[list[int], array.array]]) -> bytes:
    header, data = {}, b""
    for name, (shape, numbers) in tensors.items():
        raw = numbers.tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def head_of(version: int) -> tuple[list[int], array.array]:
    head = array.array("f", bytes(4 * VOCAB * HIDDEN))
    head[(version % LABELS) * HIDDEN] = SHARP / HIDDEN**0.5
    return [VOCAB, HIDDEN], head


def head_update(version: int) -> str:
    """What /update_weights_from_tensor takes."""
    return base64.b64encode(safetensors({"lm_head.weight": head_of(version)})).decode()


def make_naming_model(folder: Path, version: int = 0, groups: int = 1, head_dim: int = 32, tensors: dict | None = None) -> Path:
    """`tensors`: by name, those that are others."""
    folder.mkdir(parents=True)
    heads, inner = 2, 64

    def zeros(*shape):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        return list(shape), array.array("f", bytes(4 * count))

    def ones(count):
        return [count], array.array("f", [1.0] * count)

    embedding = array.array("f", bytes(4 * VOCAB * HIDDEN))
    for token in range(VOCAB):
        embedding[token * HIDDEN] = 1.0
    layer = "model.layers.0."
    (folder / "model.safetensors").write_bytes(safetensors({
        "model.embed_tokens.weight": ([VOCAB, HIDDEN], embedding), "lm_head.weight": head_of(version), "model.norm.weight": ones(HIDDEN),
        layer + "input_layernorm.weight": ones(HIDDEN), layer + "post_attention_layernorm.weight": ones(HIDDEN),
        layer + "self_attn.q_proj.weight": zeros(heads * head_dim, HIDDEN), layer + "self_attn.k_proj.weight": zeros(groups * head_dim, HIDDEN),
        layer + "self_attn.v_proj.weight": zeros(groups * head_dim, HIDDEN), layer + "self_attn.o_proj.weight": zeros(HIDDEN, heads * head_dim),
        layer + "self_attn.q_norm.weight": ones(head_dim), layer + "self_attn.k_norm.weight": ones(head_dim),
        layer + "mlp.gate_proj.weight": zeros(inner, HIDDEN), layer + "mlp.up_proj.weight": zeros(inner, HIDDEN),
        layer + "mlp.down_proj.weight": zeros(HIDDEN, inner), **(tensors or {})}))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": inner,
        "num_hidden_layers": 1, "num_attention_heads": heads, "num_key_value_heads": groups, "head_dim": head_dim,
        "max_position_embeddings": 4096, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu", "attention_bias": False,
        "attention_dropout": 0.0, "tie_word_embeddings": False, "use_sliding_window": False, "eos_token_id": VOCAB - 1,
        "torch_dtype": "float32"}))
    return folder

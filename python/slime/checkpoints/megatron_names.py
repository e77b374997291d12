"""Megatron's names of a GPT model's weights, and Hugging Face's: one table, read in both directions.

A weight of Megatron's is one tensor of Hugging Face's, or several behind one another by rows: the two halves of a gated
projection, and query, key and value rows group by group. Stacked layers and experts are leading axes.
"""

import re
from dataclasses import dataclass

from slime.checkpoints.torch_pickle import BadFile

DENSE = ("llama", "mistral", "qwen2", "qwen3", "mimo", "glm4")
EXPERTS = ("qwen2_moe", "qwen3_moe", "glm4_moe", "glm4_moe_lite", "deepseek_v2", "deepseek_v3", "kimi_k2")
TOP = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
    "output_layer.weight": "lm_head.weight",
}
# Megatron's name of a part of a layer: Hugging Face's names, and how they lie in it.
LAYER = {
    "self_attention.linear_qkv.weight": ("qkv", ["self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"]),
    "self_attention.linear_qkv.bias": ("qkv", ["self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"]),
    "self_attention.linear_proj.weight": ("whole", ["self_attn.o_proj.weight"]),
    "self_attention.linear_proj.bias": ("whole", ["self_attn.o_proj.bias"]),
    "self_attention.q_layernorm.weight": ("whole", ["self_attn.q_norm.weight"]),
    "self_attention.k_layernorm.weight": ("whole", ["self_attn.k_norm.weight"]),
    "self_attention.linear_q_proj.weight": ("whole", ["self_attn.q_proj.weight"]),
    "self_attention.linear_q_down_proj.weight": ("whole", ["self_attn.q_a_proj.weight"]),
    "self_attention.linear_q_up_proj.weight": ("whole", ["self_attn.q_b_proj.weight"]),
    "self_attention.linear_q_up_proj.layer_norm_weight": ("whole", ["self_attn.q_a_layernorm.weight"]),
    "self_attention.linear_kv_down_proj.weight": ("whole", ["self_attn.kv_a_proj_with_mqa.weight"]),
    "self_attention.linear_kv_up_proj.weight": ("whole", ["self_attn.kv_b_proj.weight"]),
    "self_attention.linear_kv_up_proj.layer_norm_weight": ("whole", ["self_attn.kv_a_layernorm.weight"]),
    "self_attention.linear_qkv.layer_norm_weight": ("whole", ["input_layernorm.weight"]),
    "post_self_attn_layernorm.weight": ("whole", ["post_self_attn_layernorm.weight"]),
    "mlp.linear_fc1.layer_norm_weight": ("whole", ["post_attention_layernorm.weight"]),
    "post_mlp_layernorm.weight": ("whole", ["post_mlp_layernorm.weight"]),
    "mlp.linear_fc1.weight": ("halves", ["mlp.gate_proj.weight", "mlp.up_proj.weight"]),
    "mlp.linear_fc2.weight": ("whole", ["mlp.down_proj.weight"]),
    "mlp.router.weight": ("whole", ["mlp.gate.weight"]),
    "mlp.router.expert_bias": ("whole", ["mlp.gate.e_score_correction_bias"]),
    "mlp.shared_experts.linear_fc1.weight": ("halves", ["mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"]),
    "mlp.shared_experts.linear_fc2.weight": ("whole", ["mlp.shared_experts.down_proj.weight"]),
    "mlp.shared_experts.gate_weight": ("whole", ["mlp.shared_expert_gate.weight"]),
    # Of multi-token prediction, whose layers come behind the others.
    "eh_proj.weight": ("whole", ["eh_proj.weight"]),
    "enorm.weight": ("whole", ["enorm.weight"]),
    "hnorm.weight": ("whole", ["hnorm.weight"]),
    "final_layernorm.weight": ("whole", ["shared_head.norm.weight"]),
}
EXPERT = {
    "linear_fc1.weight": ("halves", ["gate_proj.weight", "up_proj.weight"]),
    "linear_fc1.weight_w": ("whole", ["gate_proj.weight"]),
    "linear_fc1.weight_v": ("whole", ["up_proj.weight"]),
    "linear_fc2.weight": ("whole", ["down_proj.weight"]),
}
# Other names of the same, by the layer specification that a model was built with.
SAME = {
    "input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight",
    "pre_mlp_layernorm.weight": "mlp.linear_fc1.layer_norm_weight",
    "self_attention.kv_layernorm.weight": "self_attention.linear_kv_up_proj.layer_norm_weight",
}
# What is no weight of the model.
OTHER = re.compile(r"^(optimizer|chained|rng_state|opt_param_scheduler|rerun_state)|_extra_state|\.(exp_avg|exp_avg_sq|fp32_param)$")


@dataclass
class Part:
    """A tensor of Hugging Face's inside one of Megatron's: `rows` of what is under the indices `prefix`."""

    hf_name: str
    name: str
    prefix: tuple
    rows: list  # (begin, end) each
    dtype: str
    shape: tuple


class Names:
    """The names of one model, whose config.json is `config`. Throws BadFile for a family that is not in the table."""

    def __init__(self, config):
        config = config.get("text_config") or config
        self.family = config.get("model_type", "")
        if self.family not in DENSE + EXPERTS:
            raise BadFile(f"model_type {self.family!r} is not converted; there are {', '.join(DENSE + EXPERTS)}")
        self.layers = config["num_hidden_layers"]
        self.vocabulary = config["vocab_size"]
        self.ties = config.get("tie_word_embeddings", False)
        self.heads = config["num_attention_heads"]
        self.groups = config.get("num_key_value_heads") or self.heads
        self.is_latent = bool(config.get("kv_lora_rank"))
        self.first_dense = config.get("first_k_dense_replace", 0) if self.family in EXPERTS else self.layers

    def of_layer(self, suffix):
        """(how, Hugging Face's names) of a part of a layer, or None."""
        if self.is_latent and suffix == "self_attention.q_layernorm.weight":
            suffix = "self_attention.linear_q_up_proj.layer_norm_weight"
        half = re.fullmatch(r"(mlp\.(?:shared_experts\.)?linear_fc1\.weight)_([wv])", suffix)
        found = LAYER.get(half[1] if half else SAME.get(suffix, suffix))
        if half and found and self.family != "glm4":
            found = "whole", [found[1][half[2] == "v"]]
        if self.family == "glm4" and suffix == "mlp.linear_fc1.weight":
            return "whole", ["mlp.gate_up_proj.weight"]
        if found and self.family == "qwen2_moe":
            return found[0], [each.replace("mlp.shared_experts.", "mlp.shared_expert.") for each in found[1]]
        return found

    def rows(self, how, count):
        """Rows of each tensor inside of `count`."""
        if how == "whole":
            return [[(0, count)]]
        if how == "halves":
            return [[(0, count // 2)], [(count // 2, count)]]
        head = count // (self.heads + 2 * self.groups)
        queries, group = self.heads // self.groups * head, count // self.groups
        if count != head * (self.heads + 2 * self.groups):
            raise BadFile(f"{count} rows of query, key and value do not fit {self.heads} heads in {self.groups} groups")
        starts = range(0, count, group)
        return [
            [(at, at + queries) for at in starts],
            [(at + queries, at + queries + head) for at in starts],
            [(at + queries + head, at + group) for at in starts],
        ]

    def parts(self, tensors):
        """(Parts of Hugging Face's tensors in Megatron's `tensors`, names that are not in the table)."""
        parts, unknown = [], []
        for name, stored in tensors.items():
            if OTHER.search(name):
                continue
            if name in TOP:
                shape = stored.shape
                if name != "decoder.final_layernorm.weight":
                    if shape[0] < self.vocabulary:
                        raise BadFile(f"{name}: {shape[0]} rows; config.json says a vocabulary of {self.vocabulary}")
                    shape = (self.vocabulary, *shape[1:])
                if name == "output_layer.weight" and self.ties:
                    continue
                parts.append(Part(TOP[name], name, (), [(0, shape[0])], stored.dtype, shape))
                continue
            match = re.fullmatch(r"(decoder|mtp)\.layers\.(?:(\d+)\.)?(.+)", name)
            if not match or not self._add_layers(match, name, stored, parts):
                unknown.append(name)
        return parts, unknown

    def _add_layers(self, match, name, stored, parts):
        kind, number, suffix = match.groups()
        first = self.layers if kind == "mtp" else 0
        suffix = re.sub(r"^(transformer_layer|mtp_model_layer)\.", "", suffix)
        if number is None:
            if kind == "decoder" and stored.shape[0] != self.layers:
                raise BadFile(f"{name}: {stored.shape[0]} layers; config.json says {self.layers}")
            layers = [(layer, (layer,)) for layer in range(stored.shape[0])]
        else:
            layers = [(int(number), ())]
        expert = re.fullmatch(r"mlp\.experts\.(?:experts\.)?(?:(\d+)\.)?(linear_fc[12]\.weight(?:_[wv])?)(\d*)", suffix)
        for layer, prefix in layers:
            head, shape = f"model.layers.{first + layer}.", stored.shape[len(prefix) :]
            if not expert:
                found = self.of_layer(suffix)
                if not found:
                    return False
                self._add(found, head, name, prefix, shape, stored.dtype, parts)
            elif expert[1] or expert[3]:
                place = f"{head}mlp.experts.{expert[1] or expert[3]}."
                self._add(EXPERT[expert[2]], place, name, prefix, shape, stored.dtype, parts)
            else:
                for index in range(shape[0]):
                    place = f"{head}mlp.experts.{index}."
                    self._add(EXPERT[expert[2]], place, name, (*prefix, index), shape[1:], stored.dtype, parts)
        return True

    def _add(self, found, head, name, prefix, shape, dtype, parts):
        how, names = found
        for hf_name, rows in zip(names, self.rows(how, shape[0])):
            count = sum(end - begin for begin, end in rows)
            parts.append(Part(head + hf_name, name, prefix, rows, dtype, (count, *shape[1:])))

    def megatron_names(self, hf_names):
        """Megatron's name (layers counted) -> (how, Hugging Face's names), of all that `hf_names` has; and what is left."""
        left, found = set(hf_names), {}

        def take(name, how, names):
            if all(each in left for each in names):
                found[name] = (how, names)
                left.difference_update(names)

        for name, hf_name in TOP.items():
            take(name, "whole", [hf_name])
        for layer in range(self.layers):
            has_experts = layer >= self.first_dense
            for suffix in LAYER:
                how, names = self.of_layer(suffix)
                name = suffix
                if self.is_latent and suffix == "self_attention.linear_qkv.layer_norm_weight":
                    name = "input_layernorm.weight"
                if has_experts and suffix == "mlp.linear_fc1.layer_norm_weight":
                    name = "pre_mlp_layernorm.weight"
                take(f"decoder.layers.{layer}.{name}", how, [f"model.layers.{layer}.{each}" for each in names])
            index = 0
            while has_experts and f"model.layers.{layer}.mlp.experts.{index}.down_proj.weight" in left:
                for suffix in ("linear_fc1.weight", "linear_fc2.weight"):
                    how, names = EXPERT[suffix]
                    place = f"model.layers.{layer}.mlp.experts.{index}."
                    take(f"decoder.layers.{layer}.mlp.experts.experts.{index}.{suffix}", how, [place + each for each in names])
                index += 1
        return found, sorted(left)

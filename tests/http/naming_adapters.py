"""A tiny Qwen3 and adapters that say which one computed a token, by its values and by its output layer alike.

Values of label L put 1 into hidden number FIRST + L, which the base's output layer turns into token L. The base has label 0. An adapter of
label L has its own values, and moves what they mean from token L to token L + LABELS. So the base always draws token 0, an adapter token
L + LABELS, and values of one adapter, such as those of a cached prefix, below the output layer of another draw a token that none of them
draws."""

import array
import json
from pathlib import Path

from naming_model import HIDDEN, LABELS, SHARP, VOCAB, make_naming_model, safetensors

HEADS, HEAD_DIM = 2, 32
FIRST = HIDDEN - LABELS
# 1 of the embedding and 1 of the values: what the norm before the output layer makes of each.
NORMED = (HIDDEN / 2) ** 0.5
# Of the embedding alone, before the values.
NORMED_EMBEDDING = HIDDEN**0.5
BASE_TOKEN = 0
LAYER = "model.layers.0.self_attn."


def token_of(label: int) -> int:
    """What the adapter draws."""
    return LABELS + label


def matrix(rows: int, columns: int, entries: dict[tuple[int, int], float]):
    numbers = array.array("f", bytes(4 * rows * columns))
    for (row, column), value in entries.items():
        numbers[row * columns + column] = value
    return [rows, columns], numbers


def make_base(folder: Path) -> Path:
    """Of two key-value heads, for two ranks; the second head writes nothing."""
    return make_naming_model(folder, groups=HEADS, head_dim=HEAD_DIM, tensors={
        LAYER + "v_proj.weight": matrix(HEADS * HEAD_DIM, HIDDEN, {(BASE_TOKEN, 0): 1 / NORMED_EMBEDDING}),
        LAYER + "o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM, {(FIRST + label, label): 1.0 for label in range(LABELS)}),
        "lm_head.weight": matrix(VOCAB, HIDDEN, {(label, FIRST + label): SHARP / NORMED for label in range(LABELS)})})


def make_adapter(folder: Path, label: int, rank: int) -> Path:
    """A directory of PEFT. Only the first of `rank` rows is used: the others make it larger."""
    folder.mkdir(parents=True)
    prefix = "base_model.model."
    (folder / "adapter_model.safetensors").write_bytes(safetensors({
        prefix + LAYER + "v_proj.lora_A.weight": matrix(rank, HIDDEN, {(0, 0): 1 / NORMED_EMBEDDING}),
        prefix + LAYER + "v_proj.lora_B.weight": matrix(HEADS * HEAD_DIM, rank, {(label, 0): 1.0, (BASE_TOKEN, 0): -1.0}),
        prefix + "lm_head.lora_A.weight": matrix(rank, HIDDEN, {(0, FIRST + label): SHARP / NORMED}),
        prefix + "lm_head.lora_B.weight": matrix(VOCAB, rank, {(token_of(label), 0): 1.0, (label, 0): -1.0})}))
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "lora_dropout": 0.0, "bias": "none",
        "target_modules": ["v_proj", "lm_head"], "base_model_name_or_path": "base"}))
    return folder

"""The golden models of tests/fixtures/models, and what their weight files hold."""

import json
import struct
from pathlib import Path

MODELS = Path(__file__).resolve().parent.parent / "fixtures" / "models"


def golden_models() -> list[Path]:
    return sorted(path.parent for path in MODELS.glob("*/config.json"))


def model_types() -> list[str]:
    """Each `model_type` of their configurations, of either form."""
    configs = (json.loads(path.read_text()) for path in MODELS.glob("*/config*.json"))
    return sorted({config["model_type"] for config in configs})


def shapes(model: Path) -> dict[str, list[int]]:
    """Of all tensors, by name."""
    found = {}
    for path in model.glob("model*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        found.update({name: entry["shape"] for name, entry in header.items() if name != "__metadata__"})
    return found


def has_fused_projections(tensors: dict[str, list[int]]) -> bool:
    return any(name.endswith("qkv_proj.weight") for name in tensors)


def has_stacked_experts(tensors: dict[str, list[int]]) -> bool:
    return any(".experts." in name and len(shape) == 3 for name, shape in tensors.items())


def has_experts(tensors: dict[str, list[int]]) -> bool:
    return any(".experts." in name for name in tensors)


def has_delta_nets(tensors: dict[str, list[int]]) -> bool:
    return any(".linear_attn." in name for name in tensors)


def has_norms_over_all_heads(tensors: dict[str, list[int]]) -> bool:
    rows = {name: shape[0] for name, shape in tensors.items()}
    return any(
        name.endswith("q_norm.weight") and size == rows.get(name.replace("q_norm", "q_proj"))
        for name, size in rows.items()
    )

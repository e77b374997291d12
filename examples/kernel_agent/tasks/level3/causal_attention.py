"""Attention of several heads; each position sees itself and those before it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, q, k, v):
        score = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        later = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device).triu(1)
        return torch.softmax(score.masked_fill(later, float("-inf")), dim=-1) @ v


def get_inputs(heads=4, length=48, width=16):
    return [torch.randn(heads, length, width), torch.randn(heads, length, width), torch.randn(heads, length, width)]


def get_init_inputs():
    return []


# Held out
PROTOTYPE = (
    "void forward(const float* q, int64_t q_0, int64_t q_1, int64_t q_2, const float* k, int64_t k_0, int64_t k_1, "
    "int64_t k_2, const float* v, int64_t v_0, int64_t v_1, int64_t v_2, float* out)"
)
HELD_OUT = [
    {"heads": 1, "length": 1, "width": 4},
    {"heads": 3, "length": 67, "width": 32},
]
GPU = {"heads": 64, "length": 1024, "width": 64}

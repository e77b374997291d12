"""Projections, attention of one head, and a projection back."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        score = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, dim=-1)
        return self.out(score @ v)


def get_inputs(batch=3, length=40, width=32):
    return [torch.randn(batch, length, width)]


def get_init_inputs(width=32):
    return [width]


# Held out
PROTOTYPE = (
    "void forward(const float* x, int64_t x_0, int64_t x_1, int64_t x_2, const float* qkv_weight, int64_t "
    "qkv_weight_0, int64_t qkv_weight_1, const float* qkv_bias, const float* out_weight, int64_t out_weight_0, "
    "int64_t out_weight_1, const float* out_bias, float* out)"
)
HELD_OUT = [
    {"batch": 1, "length": 1, "width": 4},
    {"batch": 2, "length": 33, "width": 16},
]
GPU = {"batch": 32, "length": 1024, "width": 128}

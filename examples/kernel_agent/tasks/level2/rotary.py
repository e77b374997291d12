"""Pairs of columns turned by the angle of their row and column."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        half = x.shape[-1] // 2
        rate = 10000 ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
        angle = torch.arange(x.shape[0], dtype=x.dtype, device=x.device)[:, None] * rate
        a, b = x[:, :half], x[:, half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)


def get_inputs(rows=200, half=32):
    return [torch.randn(rows, 2 * half)]


def get_init_inputs():
    return []


# Held out
PROTOTYPE = "void forward(const float* x, int64_t x_0, int64_t x_1, float* out)"
HELD_OUT = [
    {"rows": 1, "half": 1},
    {"rows": 77, "half": 33},
]
GPU = {"rows": 4096, "half": 4096}

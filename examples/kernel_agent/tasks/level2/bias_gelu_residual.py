"""A bias, GELU, and a residual."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x, residual):
        return F.gelu(x + self.bias) + residual


def get_inputs(rows=96, columns=500):
    return [torch.randn(rows, columns), torch.randn(rows, columns)]


def get_init_inputs(columns=500):
    return [columns]


# Held out
PROTOTYPE = (
    "void forward(const float* x, int64_t x_0, int64_t x_1, const float* residual, int64_t residual_0, int64_t "
    "residual_1, const float* bias, float* out)"
)
HELD_OUT = [
    {"rows": 1, "columns": 1},
    {"rows": 33, "columns": 1031},
]
GPU = {"rows": 16384, "columns": 4096}

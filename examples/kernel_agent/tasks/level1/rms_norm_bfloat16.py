"""Rows divided by their root mean square, times weights, in bfloat16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns, dtype=torch.bfloat16))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
        return (y * self.weight.float()).to(x.dtype)


def get_inputs(rows=96, columns=500):
    return [torch.randn(rows, columns, dtype=torch.bfloat16)]


def get_init_inputs(columns=500):
    return [columns]


# Held out
PROTOTYPE = "void forward(const uint16_t* x, int64_t x_0, int64_t x_1, const uint16_t* weight, uint16_t* out)"
HELD_OUT = [
    {"rows": 1, "columns": 1},
    {"rows": 33, "columns": 1031},
]
GPU = {"rows": 16384, "columns": 4096}

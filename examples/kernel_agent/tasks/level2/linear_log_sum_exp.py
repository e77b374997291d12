"""A linear layer and the logarithm of the sum of exponentials of each row."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, columns, width):
        super().__init__()
        self.linear = nn.Linear(columns, width)

    def forward(self, x):
        return torch.logsumexp(self.linear(x), dim=-1)


def get_inputs(rows=64, columns=96):
    return [torch.randn(rows, columns)]


def get_init_inputs(columns=96, width=80):
    return [columns, width]


# Held out
PROTOTYPE = (
    "void forward(const float* x, int64_t x_0, int64_t x_1, const float* linear_weight, int64_t linear_weight_0, "
    "int64_t linear_weight_1, const float* linear_bias, float* out)"
)
HELD_OUT = [
    {"rows": 1, "columns": 3, "width": 2},
    {"rows": 33, "columns": 130, "width": 47},
]
GPU = {"rows": 4096, "columns": 1024, "width": 2048}

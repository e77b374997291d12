"""Product of a matrix with a vector."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, x):
        return torch.mv(a, x)


def get_inputs(rows=300, columns=400):
    return [torch.randn(rows, columns), torch.randn(columns)]


def get_init_inputs():
    return []


# Held out
PROTOTYPE = "void forward(const float* a, int64_t a_0, int64_t a_1, const float* x, int64_t x_0, float* out)"
HELD_OUT = [
    {"rows": 1, "columns": 1},
    {"rows": 129, "columns": 77},
]
GPU = {"rows": 32768, "columns": 4096}

"""The transpose of a matrix, stored row by row."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.t().contiguous()


def get_inputs(rows=300, columns=260):
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []


# Held out
PROTOTYPE = "void forward(const float* x, int64_t x_0, int64_t x_1, float* out)"
HELD_OUT = [
    {"rows": 1, "columns": 5},
    {"rows": 67, "columns": 513},
]
GPU = {"rows": 16384, "columns": 4096}

"""Sum of each row."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=-1)


def get_inputs(rows=96, columns=500):
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []


# Held out
PROTOTYPE = "void forward(const float* x, int64_t x_0, int64_t x_1, float* out)"
HELD_OUT = [
    {"rows": 1, "columns": 1},
    {"rows": 33, "columns": 1031},
]
GPU = {"rows": 16384, "columns": 4096}

"""One half of each row times the swish of the other."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value


def get_inputs(rows=96, half=300):
    return [torch.randn(rows, 2 * half)]


def get_init_inputs():
    return []


# Held out
PROTOTYPE = "void forward(const float* x, int64_t x_0, int64_t x_1, float* out)"
HELD_OUT = [
    {"rows": 1, "half": 1},
    {"rows": 33, "half": 517},
]
GPU = {"rows": 16384, "half": 2048}

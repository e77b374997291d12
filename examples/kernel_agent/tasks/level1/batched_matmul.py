"""Products of matrices, one pair for each entry of a batch."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs(batch=6, n=32, k=40, m=36):
    return [torch.randn(batch, n, k), torch.randn(batch, k, m)]


def get_init_inputs():
    return []


# Held out
PROTOTYPE = (
    "void forward(const float* a, int64_t a_0, int64_t a_1, int64_t a_2, const float* b, int64_t b_0, int64_t b_1, "
    "int64_t b_2, float* out)"
)
HELD_OUT = [
    {"batch": 1, "n": 1, "k": 2, "m": 3},
    {"batch": 3, "n": 17, "k": 65, "m": 33},
]
GPU = {"batch": 32, "n": 512, "k": 512, "m": 512}

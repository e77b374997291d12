"""Product of two matrices."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs(n=64, k=96, m=80):
    return [torch.randn(n, k), torch.randn(k, m)]


def get_init_inputs():
    return []


# Held out
PROTOTYPE = (
    "void forward(const float* a, int64_t a_0, int64_t a_1, const float* b, int64_t b_0, int64_t b_1, float* out)"
)
HELD_OUT = [
    {"n": 1, "k": 3, "m": 2},
    {"n": 33, "k": 130, "m": 47},
]
GPU = {"n": 2048, "k": 2048, "m": 2048}

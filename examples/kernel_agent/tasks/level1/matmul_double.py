"""Product of two matrices in double precision."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs(n=48, k=64, m=56):
    return [torch.randn(n, k, dtype=torch.float64), torch.randn(k, m, dtype=torch.float64)]


def get_init_inputs():
    return []


# Held out
PROTOTYPE = (
    "void forward(const double* a, int64_t a_0, int64_t a_1, const double* b, int64_t b_0, int64_t b_1, double* out)"
)
HELD_OUT = [
    {"n": 1, "k": 3, "m": 2},
    {"n": 33, "k": 70, "m": 17},
]
GPU = {"n": 1024, "k": 1024, "m": 1024}

"""Squared distances between all pairs of points."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return (a * a).sum(-1, keepdim=True) - 2 * a @ b.t() + (b * b).sum(-1)


def get_inputs(n=80, m=70, width=24):
    return [torch.randn(n, width), torch.randn(m, width)]


def get_init_inputs():
    return []


# Held out
PROTOTYPE = (
    "void forward(const float* a, int64_t a_0, int64_t a_1, const float* b, int64_t b_0, int64_t b_1, float* out)"
)
HELD_OUT = [
    {"n": 1, "m": 2, "width": 3},
    {"n": 67, "m": 129, "width": 17},
]
GPU = {"n": 4096, "m": 4096, "width": 128}

"""Group normalisation of channels, then swish."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, groups, each):
        super().__init__()
        self.norm = nn.GroupNorm(groups, groups * each)

    def forward(self, x):
        return F.silu(self.norm(x))


def get_inputs(batch=4, groups=4, each=3, length=90):
    return [torch.randn(batch, groups * each, length)]


def get_init_inputs(groups=4, each=3):
    return [groups, each]


# Held out
PROTOTYPE = (
    "void forward(const float* x, int64_t x_0, int64_t x_1, int64_t x_2, const float* norm_weight, const float* "
    "norm_bias, float* out)"
)
HELD_OUT = [
    {"batch": 1, "groups": 1, "each": 2, "length": 3},
    {"batch": 3, "groups": 5, "each": 2, "length": 67},
]
GPU = {"batch": 64, "groups": 32, "each": 8, "length": 4096}

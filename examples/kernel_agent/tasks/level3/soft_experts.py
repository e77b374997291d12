"""Several linear experts, mixed by the softmax of a router."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.Parameter(torch.randn(experts, width, width) * 0.1)

    def forward(self, x):
        share = torch.softmax(self.router(x), dim=-1)
        return torch.einsum("re,rw,ewv->rv", share, x, self.experts)


def get_inputs(rows=40, width=32):
    return [torch.randn(rows, width)]


def get_init_inputs(width=32, experts=4):
    return [width, experts]


# Held out
PROTOTYPE = (
    "void forward(const float* x, int64_t x_0, int64_t x_1, const float* experts, int64_t experts_0, int64_t "
    "experts_1, int64_t experts_2, const float* router_weight, int64_t router_weight_0, int64_t router_weight_1, "
    "const float* router_bias, float* out)"
)
HELD_OUT = [
    {"rows": 1, "width": 2, "experts": 2},
    {"rows": 33, "width": 17, "experts": 5},
]
GPU = {"rows": 4096, "width": 512, "experts": 8}

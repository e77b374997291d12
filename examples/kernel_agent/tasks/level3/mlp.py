"""Two linear layers with ReLU between them."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def get_inputs(rows=48, width=64):
    return [torch.randn(rows, width)]


def get_init_inputs(width=64, hidden=96):
    return [width, hidden]


# Held out
PROTOTYPE = (
    "void forward(const float* x, int64_t x_0, int64_t x_1, const float* up_weight, int64_t up_weight_0, int64_t "
    "up_weight_1, const float* up_bias, const float* down_weight, int64_t down_weight_0, int64_t down_weight_1, "
    "const float* down_bias, float* out)"
)
HELD_OUT = [
    {"rows": 1, "width": 2, "hidden": 3},
    {"rows": 33, "width": 47, "hidden": 130},
]
GPU = {"rows": 4096, "width": 1024, "hidden": 2048}

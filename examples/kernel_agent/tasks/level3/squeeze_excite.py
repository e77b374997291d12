"""Channels of a picture weighed by what two small layers make of their means."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.down = nn.Linear(channels, hidden)
        self.up = nn.Linear(hidden, channels)

    def forward(self, x):
        weight = torch.sigmoid(self.up(torch.relu(self.down(x.mean(dim=(2, 3))))))
        return x * weight[:, :, None, None]


def get_inputs(batch=4, channels=16, height=20, width=24):
    return [torch.randn(batch, channels, height, width)]


def get_init_inputs(channels=16, hidden=4):
    return [channels, hidden]


# Held out
PROTOTYPE = (
    "void forward(const float* x, int64_t x_0, int64_t x_1, int64_t x_2, int64_t x_3, const float* down_weight, "
    "int64_t down_weight_0, int64_t down_weight_1, const float* down_bias, const float* up_weight, int64_t "
    "up_weight_0, int64_t up_weight_1, const float* up_bias, float* out)"
)
HELD_OUT = [
    {"batch": 1, "channels": 2, "hidden": 1, "height": 1, "width": 1},
    {"batch": 3, "channels": 9, "hidden": 5, "height": 7, "width": 13},
]
GPU = {"batch": 32, "channels": 256, "hidden": 32, "height": 56, "width": 56}

"""Two convolutions with ReLU, and the input added."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.second(torch.relu(self.first(x))))


def get_inputs(batch=2, channels=6, height=20, width=18):
    return [torch.randn(batch, channels, height, width)]


def get_init_inputs(channels=6):
    return [channels]


# Held out
PROTOTYPE = (
    "void forward(const float* x, int64_t x_0, int64_t x_1, int64_t x_2, int64_t x_3, const float* first_weight, "
    "int64_t first_weight_0, int64_t first_weight_1, int64_t first_weight_2, int64_t first_weight_3, const float* "
    "first_bias, const float* second_weight, int64_t second_weight_0, int64_t second_weight_1, int64_t "
    "second_weight_2, int64_t second_weight_3, const float* second_bias, float* out)"
)
HELD_OUT = [
    {"batch": 1, "channels": 1, "height": 1, "width": 2},
    {"batch": 2, "channels": 3, "height": 9, "width": 17},
]
GPU = {"batch": 16, "channels": 64, "height": 56, "width": 56}

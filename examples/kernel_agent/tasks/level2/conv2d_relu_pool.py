"""A convolution, ReLU, and the largest of each two by two cells."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3)

    def forward(self, x):
        return F.max_pool2d(torch.relu(self.conv(x)), 2)


def get_inputs(batch=2, channels=4, height=26, width=22):
    return [torch.randn(batch, channels, height, width)]


def get_init_inputs(channels=4, filters=8):
    return [channels, filters]


# Held out
PROTOTYPE = (
    "void forward(const float* x, int64_t x_0, int64_t x_1, int64_t x_2, int64_t x_3, const float* conv_weight, "
    "int64_t conv_weight_0, int64_t conv_weight_1, int64_t conv_weight_2, int64_t conv_weight_3, const float* "
    "conv_bias, float* out)"
)
HELD_OUT = [
    {"batch": 1, "channels": 1, "filters": 1, "height": 4, "width": 4},
    {"batch": 3, "channels": 3, "filters": 5, "height": 11, "width": 17},
]
GPU = {"batch": 16, "channels": 32, "filters": 64, "height": 114, "width": 114}

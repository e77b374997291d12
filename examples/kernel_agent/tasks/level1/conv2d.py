"""Convolution in two dimensions with a border of one zero."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


def get_inputs(batch=2, channels=6, height=24, width=20):
    return [torch.randn(batch, channels, height, width)]


def get_init_inputs(channels=6, filters=8):
    return [channels, filters]


# Held out
PROTOTYPE = (
    "void forward(const float* x, int64_t x_0, int64_t x_1, int64_t x_2, int64_t x_3, const float* conv_weight, "
    "int64_t conv_weight_0, int64_t conv_weight_1, int64_t conv_weight_2, int64_t conv_weight_3, const float* "
    "conv_bias, float* out)"
)
HELD_OUT = [
    {"batch": 1, "channels": 1, "filters": 1, "height": 1, "width": 2},
    {"batch": 3, "channels": 4, "filters": 5, "height": 9, "width": 17},
]
GPU = {"batch": 16, "channels": 64, "filters": 64, "height": 112, "width": 112}

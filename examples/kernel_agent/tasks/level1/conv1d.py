"""Convolution in one dimension, without padding."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, filters, width):
        super().__init__()
        self.conv = nn.Conv1d(channels, filters, width)

    def forward(self, x):
        return self.conv(x)


def get_inputs(batch=4, channels=8, length=100):
    return [torch.randn(batch, channels, length)]


def get_init_inputs(channels=8, filters=12, width=5):
    return [channels, filters, width]


# Held out
PROTOTYPE = (
    "void forward(const float* x, int64_t x_0, int64_t x_1, int64_t x_2, const float* conv_weight, int64_t "
    "conv_weight_0, int64_t conv_weight_1, int64_t conv_weight_2, const float* conv_bias, float* out)"
)
HELD_OUT = [
    {"batch": 1, "channels": 1, "filters": 2, "length": 7, "width": 3},
    {"batch": 3, "channels": 5, "filters": 9, "length": 65, "width": 4},
]
GPU = {"batch": 32, "channels": 64, "filters": 128, "length": 4096, "width": 5}

"""Largest of each two by two cells of a picture."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, 2)


def get_inputs(batch=4, channels=8, height=32, width=40):
    return [torch.randn(batch, channels, height, width)]


def get_init_inputs():
    return []


# Held out
PROTOTYPE = "void forward(const float* x, int64_t x_0, int64_t x_1, int64_t x_2, int64_t x_3, float* out)"
HELD_OUT = [
    {"batch": 1, "channels": 1, "height": 2, "width": 2},
    {"batch": 2, "channels": 3, "height": 17, "width": 35},
]
GPU = {"batch": 64, "channels": 64, "height": 128, "width": 128}

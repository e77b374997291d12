"""A state that decays and takes in each step: h = a * h + x, for all steps."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, x):
        h, all = torch.zeros_like(x[:, 0]), []
        decay = torch.sigmoid(a)
        for step in range(x.shape[1]):
            h = decay[:, step] * h + x[:, step]
            all.append(h)
        return torch.stack(all, dim=1)


def get_inputs(batch=4, length=40, width=64):
    return [torch.randn(batch, length, width), torch.randn(batch, length, width)]


def get_init_inputs():
    return []


# Held out
PROTOTYPE = (
    "void forward(const float* a, int64_t a_0, int64_t a_1, int64_t a_2, const float* x, int64_t x_0, int64_t x_1, "
    "int64_t x_2, float* out)"
)
HELD_OUT = [
    {"batch": 1, "length": 1, "width": 3},
    {"batch": 3, "length": 17, "width": 65},
]
GPU = {"batch": 16, "length": 256, "width": 2048}

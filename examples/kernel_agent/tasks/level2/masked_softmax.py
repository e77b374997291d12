"""Softmax of scaled rows, with some elements left out."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, keep):
        return torch.softmax((x * 0.125).masked_fill(keep == 0, float("-inf")), dim=-1)


def get_inputs(rows=96, columns=500):
    return [
        torch.randn(rows, columns),
        (torch.rand(rows, columns) < 0.7).long().index_fill(1, torch.zeros(1, dtype=torch.int64), 1),
    ]


def get_init_inputs():
    return []


# Held out
PROTOTYPE = "void forward(const float* x, int64_t x_0, int64_t x_1, const int64_t* keep, int64_t keep_0, int64_t keep_1, float* out)"
HELD_OUT = [
    {"rows": 1, "columns": 1},
    {"rows": 33, "columns": 1031},
]
GPU = {"rows": 8192, "columns": 4096}

"""Rows of a table, by index."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.table = nn.Embedding(words, width)

    def forward(self, indices):
        return self.table(indices)


def get_inputs(words=500, rows=256):
    return [torch.randint(0, words, (rows,))]


def get_init_inputs(words=500, width=64):
    return [words, width]


# Held out
PROTOTYPE = (
    "void forward(const int64_t* indices, int64_t indices_0, const float* table_weight, int64_t table_weight_0, "
    "int64_t table_weight_1, float* out)"
)
HELD_OUT = [
    {"words": 3, "rows": 1, "width": 5},
    {"words": 1000, "rows": 77, "width": 33},
]
GPU = {"words": 50000, "rows": 65536, "width": 1024}

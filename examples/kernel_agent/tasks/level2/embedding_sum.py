"""Sum of the rows of a table for each bag of indices."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.table = nn.Embedding(words, width)

    def forward(self, bags):
        return self.table(bags).sum(dim=1)


def get_inputs(words=500, rows=60, bag=12):
    return [torch.randint(0, words, (rows, bag))]


def get_init_inputs(words=500, width=64):
    return [words, width]


# Held out
PROTOTYPE = (
    "void forward(const int64_t* bags, int64_t bags_0, int64_t bags_1, const float* table_weight, int64_t "
    "table_weight_0, int64_t table_weight_1, float* out)"
)
HELD_OUT = [
    {"words": 3, "rows": 1, "bag": 1, "width": 5},
    {"words": 1000, "rows": 33, "bag": 7, "width": 33},
]
GPU = {"words": 50000, "rows": 16384, "bag": 16, "width": 512}

"""Mean cross entropy of rows of logits with the class of each."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, logits, classes):
        return F.cross_entropy(logits, classes)


def get_inputs(rows=128, columns=300):
    return [torch.randn(rows, columns), torch.randint(0, columns, (rows,))]


def get_init_inputs():
    return []


# Held out
PROTOTYPE = (
    "void forward(const float* logits, int64_t logits_0, int64_t logits_1, const int64_t* classes, int64_t "
    "classes_0, float* out)"
)
HELD_OUT = [
    {"rows": 1, "columns": 2},
    {"rows": 77, "columns": 1000},
]
GPU = {"rows": 16384, "columns": 4096}

"""One step of a gated recurrent unit."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, state):
        super().__init__()
        self.cell = nn.GRUCell(width, state)

    def forward(self, x, h):
        return self.cell(x, h)


def get_inputs(rows=32, width=24, state=32):
    return [torch.randn(rows, width), torch.randn(rows, state)]


def get_init_inputs(width=24, state=32):
    return [width, state]


# Held out
PROTOTYPE = (
    "void forward(const float* x, int64_t x_0, int64_t x_1, const float* h, int64_t h_0, int64_t h_1, const float* "
    "cell_weight_ih, int64_t cell_weight_ih_0, int64_t cell_weight_ih_1, const float* cell_weight_hh, int64_t "
    "cell_weight_hh_0, int64_t cell_weight_hh_1, const float* cell_bias_ih, const float* cell_bias_hh, float* out)"
)
HELD_OUT = [
    {"rows": 1, "width": 2, "state": 3},
    {"rows": 17, "width": 33, "state": 47},
]
GPU = {"rows": 8192, "width": 512, "state": 512}

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_norm_kernel(x, residual, weight, bias, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    y = tl.load(x + row * columns + at, mask=inside, other=0.0) + tl.load(
        residual + row * columns + at, mask=inside, other=0.0
    )
    centered = tl.where(inside, y - tl.sum(y, axis=0) / columns, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centered * centered, axis=0) / columns + eps)
    w = tl.load(weight + at, mask=inside, other=0.0)
    b = tl.load(bias + at, mask=inside, other=0.0)
    tl.store(out + row * columns + at, centered * scale * w + b, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x, residual):
        rows, columns = x.shape
        out = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        add_norm_kernel[(rows,)](
            x, residual, self.norm.weight, self.norm.bias, out, columns, self.norm.eps, BLOCK=block, num_warps=8
        )
        return out

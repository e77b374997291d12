"""Triton answers of several speeds, and with mistakes: what forms_cpp.py is for C++.

A kind gives {form: Form}; `code` puts a module around it. Sizes of blocks and numbers of warps are drawn among some that are slow and
some that are fast.
"""

from dataclasses import dataclass, replace

HEAD = ["import torch", "import torch.nn as nn", "import triton", "import triton.language as tl", "", ""]
BLOCKS = ((16, 1), (128, 4), (1024, 4), (4096, 8))  # elements of a program, warps
ROWS = ((1, "whole"), (4, "whole"), (16, "whole"), (1, 32), (4, 1024))  # warps, columns at once


@dataclass(frozen=True)
class Form:
    kernel: list  # lines, with the header
    forward: list  # lines, with the header
    stored: str  # what the kernel's last line stores


def elementwise(expression):
    """`expression` of v."""

    def form(block, warps):
        kernel = [
            "def kernel(x, out, n, BLOCK: tl.constexpr):",
            "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
            "    v = tl.load(x + i, mask=i < n)",
            f"    tl.store(out + i, {expression}, mask=i < n)",
        ]
        forward = [
            "    def forward(self, x):",
            "        out = torch.empty_like(x)",
            "        n = x.numel()",
            f"        kernel[(triton.cdiv(n, {block}),)](x, out, n, BLOCK={block}, num_warps={warps})",
            "        return out",
        ]
        return Form(kernel, forward, expression)

    return {f"block {block}": form(block, warps) for block, warps in BLOCKS}


def _of_rows(inputs, whole, chunks, stored, shape):
    """One program for each row: `whole` has it in one block, `chunks` goes through it."""
    names = ", ".join(inputs)

    def form(warps, columns):
        is_whole = columns == "whole"
        block = "triton.next_power_of_2(n)" if is_whole else columns
        kernel = [
            f"def kernel({names}, out, n, BLOCK: tl.constexpr):",
            "    r = tl.program_id(0).to(tl.int64)",
            *(whole if is_whole else chunks),
        ]
        forward = [
            f"    def forward(self, {names}):",
            f"        n = {inputs[0]}.shape[-1]",
            f"        out = torch.empty({inputs[0]}.shape{shape}, device={inputs[0]}.device)",
            f"        kernel[({inputs[0]}.numel() // n,)]({names}, out, n, BLOCK={block}, num_warps={warps})",
            "        return out",
        ]
        return Form(kernel, forward, stored)

    return {f"{columns} {warps}": form(warps, columns) for warps, columns in ROWS}


def _load(inputs, indent="    ", other="0.0"):
    return [
        f"{indent}{'vwu'[at]} = tl.load({name} + r * n + j, mask=j < n, other={other})"
        for at, name in enumerate(inputs)
    ]


IN_CHUNKS = ["    for first in range(0, n, BLOCK):", "        j = first + tl.arange(0, BLOCK)"]


def row_sum(inputs=("x",), term="v", result="s"):
    """out[r]: `result` of s, the sum of `term` of v (and w of a second input) over row r."""
    store = f"    tl.store(out + r, {result})"
    whole = ["    j = tl.arange(0, BLOCK)", *_load(inputs), f"    s = tl.sum({term}, axis=0)", store]
    total = [
        "    total = tl.zeros([BLOCK], tl.float32)",
        *IN_CHUNKS,
        *_load(inputs, "        "),
        f"        total += {term}",
    ]
    return _of_rows(inputs, whole, [*total, "    s = tl.sum(total, axis=0)", store], result, "[:-1]")


def row_map(sums, expression, inputs=("x",)):
    """out[r][j]: `expression` of v and of `sums`: (name, term, lines that follow). A term is 0 where v is 0 beyond the row."""
    whole, chunks = ["    j = tl.arange(0, BLOCK)", *_load(inputs)], []
    for name, term, then in sums:
        then = [f"    {line}" for line in then]
        whole += [f"    {name} = tl.sum({term}, axis=0)", *then]
        chunks += [
            "    total = tl.zeros([BLOCK], tl.float32)",
            *IN_CHUNKS,
            *_load(inputs, "        "),
            f"        total += {term}",
        ]
        chunks += [f"    {name} = tl.sum(total, axis=0)", *then]
    store = f"tl.store(out + r * n + j, {expression}, mask=j < n)"
    chunks += [*IN_CHUNKS, *_load(inputs, "        "), f"        {store}"]
    return _of_rows(inputs, [*whole, f"    {store}"], chunks, expression, "")


def row_softmax():
    nothing = "-float('inf')"
    stored = "tl.exp(v - m) / s"
    store = f"tl.store(out + r * n + j, {stored}, mask=j < n)"
    whole = [
        "    j = tl.arange(0, BLOCK)",
        *_load(("x",), other=nothing),
        "    m = tl.max(v, axis=0)",
        "    s = tl.sum(tl.exp(v - m), axis=0)",
        f"    {store}",
    ]
    load = [*IN_CHUNKS, *_load(("x",), "        ", nothing)]
    chunks = [
        f"    top = tl.full([BLOCK], {nothing}, tl.float32)",
        *load,
        "        top = tl.maximum(top, v)",
        "    m = tl.max(top, axis=0)",
        "    total = tl.zeros([BLOCK], tl.float32)",
        *load,
        "        total += tl.exp(v - m)",
        "    s = tl.sum(total, axis=0)",
        *load,
        f"        {store}",
    ]
    return _of_rows(("x",), whole, chunks, stored, "")


def matmul(is_transposed=False, finish="acc", has_bias=False, module=None):
    """a [n, k] times b [k, m], or b [m, k]; `finish` of acc, a tile of the product and the bias. With `module`, b and the bias are those of
    self.MODULE, an nn.Linear, and there is one input, x."""
    names = "x" if module else "a, b"
    arguments = ("x" if module else "a") + ", b" + (", bias" if has_bias else "")
    row, column = ("1", "k") if is_transposed else ("m", "1")

    def form(tile, inner, warps):
        kernel = [
            f"def kernel({arguments}, out, n, m, k, T: tl.constexpr, K: tl.constexpr):",
            "    i = tl.program_id(0) * T + tl.arange(0, T)",
            "    j = tl.program_id(1) * T + tl.arange(0, T)",
            "    acc = tl.zeros([T, T], tl.float32)",
            "    for first in range(0, k, K):",
            "        p = first + tl.arange(0, K)",
            f"        u = tl.load({arguments[0]} + i[:, None] * k + p[None, :], mask=(i[:, None] < n) & (p[None, :] < k), other=0.0)",
            f"        w = tl.load(b + p[:, None] * {row} + j[None, :] * {column}, mask=(p[:, None] < k) & (j[None, :] < m), other=0.0)",
            "        acc += tl.dot(u, w, input_precision='ieee')",
            *(["    acc += tl.load(bias + j, mask=j < m, other=0.0)[None, :]"] if has_bias else []),
            f"    tl.store(out + i[:, None] * m + j[None, :], {finish}, mask=(i[:, None] < n) & (j[None, :] < m))",
        ]
        forward = [
            f"    def forward(self, {names}):",
            *([f"        b, bias = self.{module}.weight, self.{module}.bias"] if module else []),
            f"        n, k = {arguments[0]}.shape",
            f"        m = b.shape[{0 if is_transposed else 1}]",
            f"        out = torch.empty((n, m), device={arguments[0]}.device)",
            f"        grid = (triton.cdiv(n, {tile}), triton.cdiv(m, {tile}))",
            f"        kernel[grid]({arguments}, out, n, m, k, T={tile}, K={inner}, num_warps={warps})",
            "        return out",
        ]
        return Form(kernel, forward, finish)

    return {
        f"tile {tile} {inner}": form(tile, inner, warps)
        for tile, inner, warps in ((16, 16, 1), (32, 32, 4), (64, 32, 4), (128, 16, 8))
    }


def code(form, init=()):
    """`init`: lines of a constructor."""
    model = ["class ModelNew(nn.Module):", *init, *form.forward]
    return "\n".join([*HEAD, "@triton.jit", *form.kernel, "", "", *model])


def mistakes(form):
    """{mistake: the form with it}: a name that Triton does not have; the double of what should be stored."""
    kernel = form.kernel
    last = kernel[-1].replace(f", {form.stored}", f", 2 * ({form.stored})", 1)
    return {
        "compile": replace(
            form, kernel=[kernel[0], kernel[1].replace("tl.program_id(0)", "tl.program(0)"), *kernel[2:]]
        ),
        "wrong": replace(form, kernel=[*kernel[:-1], last]),
    }

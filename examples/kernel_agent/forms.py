"""The tasks whose answers the supervised stage shows in several forms (forms_cpp.py, forms_triton.py)."""

from examples.kernel_agent import forms_cpp as cpp
from examples.kernel_agent import forms_triton as triton

LINEAR = [
    "    def __init__(self, columns, width):",
    "        super().__init__()",
    "        self.linear = nn.Linear(columns, width)",
    "",
]
TANH = "0.7978845608f * (v + 0.044715f * v * v * v)"

# name: (forms of C++, of a signature; forms of Triton; lines of ModelNew's constructor)
FORMS = {
    "swish": (
        lambda signature: cpp.elementwise(signature, "v / (1 + std::exp(-v))"),
        lambda: triton.elementwise("v * tl.sigmoid(v)"),
        (),
    ),
    "gelu_tanh": (
        lambda signature: cpp.elementwise(signature, f"0.5f * v * (1 + std::tanh({TANH}))"),
        lambda: triton.elementwise(f"v * tl.sigmoid(2 * {TANH.replace('f ', ' ')})"),
        (),
    ),
    "sum_rows": (cpp.row_sum, triton.row_sum, ()),
    "softmax_rows": (cpp.row_softmax, triton.row_softmax, ()),
    "normalize_rows": (
        lambda signature: cpp.row_map(
            signature,
            [("s", "a[j] * a[j]", ["const float f = 1 / std::max(std::sqrt(float(s)), 1e-12f);"])],
            "a[j] * f",
        ),
        lambda: triton.row_map([("s", "v * v", ["f = 1 / tl.maximum(tl.sqrt(s), 1e-12)"])], "v * f"),
        (),
    ),
    "matmul": (cpp.matmul, triton.matmul, ()),
    "matmul_transposed": (
        lambda signature: cpp.matmul(signature, is_transposed=True),
        lambda: triton.matmul(is_transposed=True),
        (),
    ),
    "mean_square_error_rows": (
        lambda signature: cpp.row_sum(signature, "(a[j] - b[j]) * (a[j] - b[j])", "s / {n}"),
        lambda: triton.row_sum(("x", "target"), "(v - w) * (v - w)", "s / n"),
        (),
    ),
    "standardize_clip": (
        lambda signature: cpp.row_map(
            signature,
            [
                ("t", "a[j]", ["const float m = t / {n};"]),
                ("s", "(a[j] - m) * (a[j] - m)", ["const float f = 1 / std::sqrt(float(s) / {n} + 1e-5f);"]),
            ],
            "std::clamp((a[j] - m) * f, -2.0f, 2.0f)",
        ),
        lambda: triton.row_map(
            [
                ("t", "v", ["m = t / n"]),
                ("s", "tl.where(j < n, (v - m) * (v - m), 0.0)", ["f = 1 / tl.sqrt(s / n + 1e-5)"]),
            ],
            "tl.minimum(tl.maximum((v - m) * f, -2.0), 2.0)",
        ),
        (),
    ),
    "linear_relu": (
        lambda signature: cpp.matmul(signature, is_transposed=True, finish="v > 0 ? v : 0"),
        lambda: triton.matmul(is_transposed=True, finish="tl.maximum(acc, 0.0)", has_bias=True, module="linear"),
        LINEAR,
    ),
}


def forms_of(task, backend):
    """{form: {None: its code, "compile": with a mistake that a compiler finds, "wrong": with another one}}"""
    in_cpp, in_triton, init = FORMS[task.name]
    if backend == "triton":
        return {
            name: {None: triton.code(form, init)}
            | {mistake: triton.code(bad, init) for mistake, bad in triton.mistakes(form).items()}
            for name, form in in_triton().items()
        }
    signature = cpp.Signature.of(task.prototype)
    return {
        name: {None: cpp.code(signature, body)}
        | {mistake: cpp.code(signature, bad) for mistake, bad in cpp.mistakes(body).items()}
        for name, body in in_cpp(signature).items()
    }

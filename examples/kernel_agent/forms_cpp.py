"""C++ answers of several speeds, and with mistakes, for kinds of tasks: what the supervised stage of a tiny model shows.

A kind is a function of the answer's signature that gives {form: lines of the function's body}. No form is marked as fast: which
one is, depends on the machine, and is what reinforcement learning finds out.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Signature:
    prototype: str
    tensors: tuple  # (name, number of dimensions) of each argument before `out`

    @classmethod
    def of(cls, prototype):
        names = re.findall(r"const float\* (\w+)", prototype)
        return cls(prototype, tuple((name, len(re.findall(rf"int64_t {name}_\d+\b", prototype))) for name in names))

    def name(self, which=0):
        return self.tensors[which][0]

    def sizes(self, which=0):
        name, rank = self.tensors[which]
        return [f"{name}_{axis}" for axis in range(rank)]

    @property
    def rows(self):
        return " * ".join(self.sizes()[:-1])

    @property
    def columns(self):
        return self.sizes()[-1]


def loop(variable, size, indent=""):
    return f"{indent}for (int64_t {variable} = 0; {variable} < {size}; ++{variable})"


def elementwise(signature, expression):
    """`expression` of v."""
    x = signature.name()

    def flat(kind):
        return [
            f"{loop('i', ' * '.join(signature.sizes()))} {{",
            f"  const {kind} v = {x}[i];",
            f"  out[i] = {expression};",
            "}",
        ]

    strided = [
        loop("j", signature.columns),
        f"{loop('r', signature.rows)} {{",
        f"  const float v = {x}[r * {signature.columns} + j];",
        f"  out[r * {signature.columns} + j] = {expression};",
        "}",
    ]
    return {"flat": flat("float"), "double": flat("double"), "strided": strided}


def _rows(signature):
    """Begins with the pointers a, b, ... to a row of each tensor of the first one's rank."""
    whole = [tensor for tensor in signature.tensors if tensor[1] == signature.tensors[0][1]]
    begin = [f"{loop('r', signature.rows)} {{"]
    return begin + [
        f"  const float* {'abc'[at]} = {name} + r * {signature.columns};" for at, (name, _) in enumerate(whole)
    ]


def _sum(signature, name, term, kind="float", pragma=False, variable="j", indent="  "):
    lines = [f"{indent}{kind} {name} = 0;"]
    if pragma:
        lines.append(f"#pragma omp simd reduction(+:{name})")
    term = term.replace("[j]", f"[{variable}]")
    return [*lines, loop(variable, signature.columns, indent), f"{indent}  {name} += {term};"]


def row_sum(signature, term="a[j]", result="s"):
    """out[r]: `result` of s, the sum of `term` over row r."""
    result = result.format(n=signature.columns)
    end = [f"  out[r] = {result};", "}"]

    def form(**how):
        return [*_rows(signature), *_sum(signature, "s", term, **how), *end]

    return {"plain": form(), "simd": form(pragma=True), "double": form(kind="double")}


def row_map(signature, sums, expression):
    """out[r][j]: `expression` of the row's elements and of `sums`: (name, term, lines that follow)."""
    columns = signature.columns
    begin = [*_rows(signature), f"  float* o = out + r * {columns};"]

    def stages(indent="  ", **how):
        for name, term, then in sums:
            yield from _sum(signature, name, term, indent=indent, **how)
            yield from (indent + line.format(n=columns) for line in then)

    end = [loop("j", columns, "  "), f"    o[j] = {expression};", "}"]
    again = [f"{loop('j', columns, '  ')} {{", *stages("    ", variable="p"), f"    o[j] = {expression};", "  }", "}"]
    return {
        "plain": [*begin, *stages(), *end],
        "simd": [*begin, *stages(pragma=True), *end],
        "double": [*begin, *stages(kind="double"), *end],
        "again": [*begin, *again],
    }


def row_softmax(signature):
    columns = signature.columns
    each = loop("j", columns, "  ")
    begin = [*_rows(signature), f"  float* o = out + r * {columns};", "  float top = a[0];"]
    top = [each, "    top = std::max(top, a[j]);"]
    store = ["  float s = 0;", f"{each} {{", "    o[j] = std::exp(a[j] - top);", "    s += o[j];", "  }"]
    return {
        "divide": [*begin, *top, *store, each, "    o[j] /= s;", "}"],
        "multiply": [
            *begin,
            "#pragma omp simd reduction(max:top)",
            *top,
            *store,
            "  const float f = 1 / s;",
            each,
            "    o[j] *= f;",
            "}",
        ],
        "twice": [
            *begin,
            *top,
            *_sum(signature, "s", "std::exp(a[j] - top)"),
            each,
            "    o[j] = std::exp(a[j] - top) / s;",
            "}",
        ],
        "again": [
            *begin,
            *top,
            f"{each} {{",
            *_sum(signature, "s", "std::exp(a[j] - top)", variable="p", indent="    "),
            "    o[j] = std::exp(a[j] - top) / s;",
            "  }",
            "}",
        ],
    }


def matmul(signature, is_transposed=False, finish=""):
    """out[i][j]: the sum over p of a[i][p] * b[p][j], or b[j][p]; `finish` of v = that and a third tensor's element j."""
    a, b = signature.name(0), signature.name(1)
    n, k = signature.sizes(0)
    m = signature.sizes(1)[0 if is_transposed else 1]
    element = f"{a}[i * {k} + p] * " + (f"{b}[j * {k} + p]" if is_transposed else f"{b}[p * {m} + j]")
    i, j, p = loop("i", n), loop("j", m), loop("p", k)
    add = f"  out[i * {m} + j] += {element};"
    clear = f"std::fill(out, out + {n} * {m}, 0.0f);"
    value = f" + {signature.name(2)}[j]" if len(signature.tensors) > 2 else ""
    last = [f"  const float v = s{value};", f"  out[i * {m} + j] = {finish or 'v'};", "}"]
    end = []
    if finish or value:
        end = [
            i,
            f"{j} {{",
            f"  const float v = out[i * {m} + j]{value};",
            f"  out[i * {m} + j] = {finish or 'v'};",
            "}",
        ]

    def dot(*pragma):
        return [i, f"{j} {{", "  float s = 0;", *pragma, loop("p", k, "  "), f"    s += {element};", *last]

    return {
        "dot": dot(),
        "dot simd": dot("#pragma omp simd reduction(+:s)"),
        "ipj": [clear, i, p, j, add, *end],
        "jpi": [clear, j, p, i, add, *end],
    }


def code(signature, body):
    return "\n".join([f"{signature.prototype} {{", *body, "}"])


def mistakes(body):
    """{mistake: the body with it}: the last statement has no semicolon; the first loop leaves out its first round."""
    last = max(index for index, line in enumerate(body) if line.endswith(";"))
    first = next(index for index, line in enumerate(body) if line.startswith("for ("))
    return {
        "compile": [*body[:last], body[last][:-1], *body[last + 1 :]],
        "wrong": [*body[:first], body[first].replace(" = 0; ", " = 1; ", 1), *body[first + 1 :]],
    }

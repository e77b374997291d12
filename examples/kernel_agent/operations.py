"""The three products that kernels are written for, and the forms that the conversations of the SFT stage show.

A kernel is the body of

    void kernel(int n, int m, int k, const float* a, const float* b, float* c)

with c of n rows and m columns, zero at the beginning. p runs over the k terms of a sum.
"""

# What the question says: (element of a, element of b) of the term p of c[i][j].
OPERATIONS = {
    "c=a*b": ("a[i*k+p]", "b[p*m+j]"),
    "c=a*b'": ("a[i*k+p]", "b[j*k+p]"),
    "c=a'*b": ("a[p*n+i]", "b[p*m+j]"),
}
ORDERS = ["ijp", "ipj", "jip", "jpi", "pij", "pji", "dot"]  # of the loops, from outside; dot: ij, and a sum of its own
PRAGMAS = ["", "#pragma GCC unroll 4\n", "#pragma omp simd\n"]  # before the innermost loop
LIMIT_OF = {"i": "n", "j": "m", "p": "k"}


def loop(variable):
    return f"for(int {variable}=0;{variable}<{LIMIT_OF[variable]};++{variable})"


def kernel_text(operation, order, pragma, bug=None):
    """A kernel. bug "index": b's element is another one; "semicolon": the last one is missing."""
    a, b = OPERATIONS[operation]
    if bug == "index":
        b = {"b[p*m+j]": "b[j*k+p]", "b[j*k+p]": "b[p*m+j]"}[b]
    end = "" if bug == "semicolon" else ";"
    if order == "dot":
        if "simd" in pragma:
            pragma = "#pragma omp simd reduction(+:s)\n"
        return f"{loop('i')}\n{loop('j')}{{float s=0;\n{pragma}{loop('p')}\ns+={a}*{b};\nc[i*m+j]=s{end}}}"
    outer, middle, inner = order
    return f"{loop(outer)}\n{loop(middle)}\n{pragma}{loop(inner)}\nc[i*m+j]+={a}*{b}{end}"


def naive(operation):
    """What speed-ups are relative to."""
    return kernel_text(operation, "ijp", "")

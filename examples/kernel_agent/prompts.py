"""What the model is asked, the code in its answer, and what it hears about it.

The brief form is for models that know nothing but these conversations: the question is the PyTorch code alone, and what is heard of
an error is its kind.
"""

import re

# backend: (language, mark of its code block)
LANGUAGES = {"cpp": ("C++", "cpp"), "triton": ("Triton", "python")}
MAX_SAID = 600  # characters of what a turn hears; an error message can be longer than a context
MAX_SAID_BRIEF = 48

ASK = """\
Write {language} code that computes what this PyTorch module computes, and is faster than PyTorch.

```python
{source}
```

{contract}

Answer with one ```{mark} block. It is compiled, compared with the module on fresh inputs, and timed."""

CONTRACTS = {
    "cpp": """\
Define this function in C++20. Tensors are contiguous, rows first; the module's parameters follow forward's arguments, in the order of \
state_dict(). There is one thread, and `#pragma omp simd` works.

{prototype}""",
    "triton": """\
Define `class ModelNew(nn.Module)` with the constructor and the parameters of `Model`; its forward starts kernels of yours that are \
marked `@triton.jit`. PyTorch may allocate and reshape tensors, and does not compute.""",
}


def contract(task, backend):
    """How an answer is called."""
    return CONTRACTS[backend].format(prototype=task.prototype)


def question(source, contract, backend, is_brief=False):
    """The first message: the task's PyTorch code, and `contract`, how the answer is called."""
    if is_brief:
        return source.strip()
    language, mark = LANGUAGES[backend]
    return ASK.format(language=language, mark=mark, source=source.strip(), contract=contract.strip())


def answer(code, backend):
    """The message whose code is `code`."""
    return f"```{LANGUAGES[backend][1]}\n{code}\n```"


def code_of(text, backend):
    """The last closed block of the answer, behind what was thought; None where there is none. Blocks without a mark count, those
    of another language do not."""
    text = text.rpartition("</think>")[2]
    marks = {"", LANGUAGES[backend][1], {"cpp": "c++", "triton": "triton"}[backend]}
    blocks = re.findall(r"^```([^\n`]*)\n(.*?)^[ \t]*```[ \t]*$", text, re.DOTALL | re.MULTILINE)
    fitting = [code for mark, code in blocks if mark.strip().lower() in marks]
    return fitting[-1].rstrip("\n") if fitting else None


def plain(said, limit):
    """Marks of a conversation in what somebody else says are text, and there is an end to it."""
    return said.replace("<|", "< |")[:limit]


def heard(found, is_brief=False):
    """The message that follows a kernel: what the grader says of it, and what is wanted next."""
    if is_brief:
        return plain(re.split(r"[\n:]", found["feedback"], maxsplit=1)[0], MAX_SAID_BRIEF)
    said = plain(found["feedback"], MAX_SAID)
    if found["correct"]:
        return f"{said}\nWrite a faster one, or answer without code to keep this one."
    return f"{said}\nAnswer with the whole corrected code."


def without_code(backend, feedback=None):
    """What an answer that cannot be graded is found to be."""
    said = feedback or f"no ```{LANGUAGES[backend][1]} block"
    return {"compiled": False, "correct": False, "speedup": 0.0, "reward": 0.0, "feedback": said, "stage": "no code"}

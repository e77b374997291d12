#!/usr/bin/env python3
"""Writes docs/api.md, the reference of `import slime`, from the docstrings and annotations of the package.

    python3 tools/generate/api_page.py          # writes the page
    python3 tools/generate/api_page.py --check  # exit status 1 where the page differs

Standard library only. Definitions are read with `ast`, so that annotations stand as they are written.
"""

import argparse
import ast
import inspect
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "slime" / "loop"
PAGE = ROOT / "docs" / "api.md"
SECTIONS = [
    ("Start", ["start", "astart", "train", "grpo", "agrpo"]),
    ("A model to sample, score and train", ["Session", "Sampler", "Grpo", "GrpoStep", "Group", "Pass", "Update", "Pending", "advantages_of"]),
    ("A run whose steps the script decides", ["Run", "Rollout", "Training", "Update of a run", "Evaluation", "Saved", "Step", "Sample"]),
    ("A run with a handle", ["TrainingRun"]),
    ("Errors", ["Error", "Refused", "RewardError", "RunOver"]),
]
FILES = {"Update of a run": ("calls", "Update"), "Update": ("passes", "Update")}
HEAD = """# API reference

What `import slime` has for scripts and notebooks; [python.md](python.md) is the guide. This page is generated from the docstrings by
`tools/generate/api_page.py`.
"""


def definitions():
    found = {}
    for path in sorted(PACKAGE.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                is_overload = any(ast.unparse(each) == "overload" for each in node.decorator_list)
                if not is_overload and not node.name.startswith("_"):
                    found[path.stem, node.name] = node
    return found


def node_of(found, name):
    if name in FILES:
        return found[FILES[name]]
    [node] = [node for (_, own), node in found.items() if own == name]
    return node


def text_of(docstring):
    """reStructuredText as it is used here to Markdown."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", inspect.cleandoc(docstring))
    text = text.replace("``", "`")
    text = re.sub(r"\s*# doctest: \+SKIP", "", text)
    lines, block = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith((">>> ", "... ")) or (block and line.strip() and line.startswith("    ")):
            block.append(line[4:])
            continue
        if block:
            lines += ["```python", *block, "```"]
            block = []
        lines.append(line)
    return "\n".join(lines).strip()


def signature_of(node):
    arguments = ast.unparse(node.args)
    arguments = re.sub(r"^self(, )?", "", arguments)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{prefix}{node.name}({arguments}){returns}"


def wrapped(signature):
    """One line, or one line an argument."""
    if len(signature) <= 100:
        return signature
    head, _, rest = signature.partition("(")
    inside, _, tail = rest.rpartition(")")
    parts, depth, part = [], 0, ""
    for letter in inside:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return "\n".join([f"{head}(", *(f"    {each}," for each in [*parts, part.strip()] if each), f"){tail}"])


def members(node):
    """Public methods and properties with docstrings, and attributes with `#:` comments."""
    made = []
    for each in node.body:
        if not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) or each.name.startswith("_"):
            continue
        docstring = ast.get_docstring(each)
        if docstring is None:
            continue
        is_property = any(ast.unparse(one) == "property" for one in each.decorator_list)
        returns = f" -> {ast.unparse(each.returns)}" if each.returns is not None else ""
        made.append((f"{each.name}{returns}" if is_property else signature_of(each), docstring))
    return made


def block(signature):
    return f"```python\n{wrapped(signature)}\n```"


def entry(name, node):
    title = name if name != "Update of a run" else "Update (of a run)"
    lines = [f"### {title}", ""]
    if isinstance(node, ast.ClassDef):
        [made] = [each for each in node.body if getattr(each, "name", "") == "__init__"] or [None]
        if name == "Grpo":
            lines += [block(signature_of(made).replace("__init__", "session.grpo").replace("session: Session, ", "").replace(" -> None", "")), ""]
        lines += [text_of(ast.get_docstring(node) or ""), ""]
        for signature, docstring in members(node):
            lines += [block(signature), "", text_of(docstring), ""]
    else:
        lines += [block(signature_of(node)), "", text_of(ast.get_docstring(node) or ""), ""]
    return lines


def page():
    found = definitions()
    lines = [HEAD]
    for section, names in SECTIONS:
        lines += [f"## {section}", ""]
        for name in names:
            lines += entry(name, node_of(found, name))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    made = page()
    if parser.parse_args().check:
        if not PAGE.exists() or PAGE.read_text() != made:
            sys.exit("docs/api.md is not that of the docstrings: python3 tools/generate/api_page.py")
    else:
        PAGE.write_text(made)


if __name__ == "__main__":
    main()

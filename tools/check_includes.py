#!/usr/bin/env python3
"""Checks every #include of src/ against the folder table of ARCHITECTURE.md.

    python tools/check_includes.py          # prints violations, exits 1 if there are any
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| `(\w+)` \| .* \| ([^|]+) \|$")
INCLUDE = re.compile(r'^\s*#include "([^"]+)"')
TORCH = re.compile(r"^\s*#include <(torch/torch\.h|torch/all\.h)>")


def allowed_folders() -> tuple[dict[str, set[str]], set[str]]:
    """The table, and the folders of its second part, which are planned and do not exist yet."""
    table, planned, is_planned = {}, set(), False
    for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines():
        is_planned |= line.startswith("Planned")
        if match := ROW.match(line):
            table[match[1]] = {part.strip() for part in match[2].split(",")} - {"-"}
            if is_planned:
                planned.add(match[1])
    return table, planned


def main() -> int:
    table, planned = allowed_folders()
    problems = []
    for folder in table:
        if (ROOT / "src" / folder).is_dir() == (folder in planned):
            problems.append(f"ARCHITECTURE.md: src/{folder} " + ("is there already" if folder in planned else "is not there"))
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        relative = path.relative_to(ROOT / "src")
        folder = relative.parts[0]
        is_test = path.stem.endswith("_test")
        if folder not in table:
            problems.append(f"src/{relative}: folder `{folder}` is not in the table of ARCHITECTURE.md")
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if path.suffix == ".h" and TORCH.match(line):
                problems.append(f"src/{relative}:{number}: headers take the tensor from core/tensor.h")
            if not (match := INCLUDE.match(line)):
                continue
            target = match[1]
            other = target.split("/")[0]
            if not (ROOT / "src" / target).exists():
                problems.append(f'src/{relative}:{number}: "{target}" is no file under src/')
            elif other != folder and not is_test and not table[folder] & {other, target, "everything"}:
                problems.append(f"src/{relative}:{number}: `{folder}` may not include {target}")
    print("\n".join(problems) or f"includes follow the table ({len(table)} folders)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks src/: every #include against the folder table of ARCHITECTURE.md, no cycle of includes inside a folder, and what
has grown large says why. The table allows nothing that no source uses, and is in the order of CMakeLists.txt, which links
by it.

    python tools/check_includes.py    # prints violations, exits 1 if there are any

A file of more than 450 lines, or a class (records, which are plain structs, apart) of more than twelve data members, has a
comment with "One file because ..." or "One class because ...": in the file, or in the header of its name, or in the comment
above the class.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
ROW = re.compile(r"^\| `(\w+)` \| .* \| ([^|]+) \|$")
MODULE = re.compile(r"^slime_module\((\w+)([^)]*)\)", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#include "([^"]+)"')
TORCH = re.compile(r"^\s*#include <(torch/torch\.h|torch/all\.h)>")
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")
MOST_LINES = 450
MOST_MEMBERS = 12
# Bases may stand on lines of their own; the name of a class inside another one is qualified.
CLASS = re.compile(r"^(?P<indent>\s*)(?:template <.*>\s*)?class (?:\w+\(.*?\) )?(?P<name>[\w:]*\w)(?: final)?(?: : [^{;]*)?\s*\{")
# A data member stands in the class's own indentation and ends like one; functions have parentheses before the end.
MEMBER = re.compile(r"^(?!using |friend |typedef |static |return |enum |struct |class |public|private|protected)[\w:<>,*&\s()\[\]]*?\w_?(?:\{.*\}| = .*|\[\w*\])?;$")


def allowed_folders() -> tuple[dict[str, set[str]], set[str]]:
    """The table, and the folders of its second part, which are planned and do not exist yet. "everything" stays next to
    the rows above, which it stands for."""
    table, planned, is_planned = {}, set(), False
    for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines():
        is_planned |= line.startswith("Planned")
        if match := ROW.match(line):
            parts = {part.strip() for part in match[2].split(",")} - {"-"}
            table[match[1]] = parts | set(table) if "everything" in parts else parts
            if is_planned:
                planned.add(match[1])
    return table, planned


def is_for_tests(name: str, lines: list[str]) -> bool:
    """Tests, and headers that say so in their first line of comment; they may include every folder."""
    return Path(name).stem.endswith("_test") or any(line.startswith("/// For tests") for line in lines[:4])


def check_table(files: dict[str, list[str]]) -> list[str]:
    table, planned = allowed_folders()
    problems = []
    used = {folder: set() for folder in table}
    for folder in table:
        if (SRC / folder).is_dir() == (folder in planned):
            problems.append(f"ARCHITECTURE.md: src/{folder} " + ("is there already" if folder in planned else "is not there"))
    for name, lines in files.items():
        folder = name.split("/")[0]
        is_test = is_for_tests(name, lines)
        if folder not in table:
            problems.append(f"src/{name}: folder `{folder}` is not in the table of ARCHITECTURE.md")
            continue
        for number, line in enumerate(lines, 1):
            if name.endswith(".h") and TORCH.match(line):
                problems.append(f"src/{name}:{number}: headers take the tensor from core/tensor.h")
            if not (match := INCLUDE.match(line)):
                continue
            target = match[1]
            other = target.split("/")[0]
            if not (SRC / target).exists():
                problems.append(f'src/{name}:{number}: "{target}" is no file under src/')
            elif not is_test and is_for_tests(target, files.get(target, [])):
                problems.append(f"src/{name}:{number}: {target} is for tests")
            elif other != folder and not is_test and not table[folder] & {other, target}:
                problems.append(f"src/{name}:{number}: `{folder}` may not include {target}")
            elif not is_test:
                used[folder] |= {other, target}
    for folder, allowed in table.items():
        for part in sorted(allowed - used[folder]) if "everything" not in allowed else []:
            problems.append(f"ARCHITECTURE.md: `{folder}` may include {part}, and no source does")
    return problems + check_order(table, planned)


def check_order(table: dict[str, set[str]], planned: set[str]) -> list[str]:
    """Rows allow only rows above them, and are the modules of CMakeLists.txt in its order."""
    problems, above = [], set()
    for folder, allowed in table.items():
        for part in sorted(part for part in allowed - {"everything"} if part.split("/")[0] not in above):
            problems.append(f"ARCHITECTURE.md: `{folder}` may include {part}, which should have a row above it")
        above.add(folder)
    modules = [match[1] for match in MODULE.finditer((ROOT / "CMakeLists.txt").read_text())]
    rows = [folder for folder in table if folder not in planned]
    if modules != rows:
        different = next((pair for pair in zip(modules + [None], rows + [None]) if pair[0] != pair[1]), (None, None))
        problems.append(f"CMakeLists.txt has slime_module({different[0]}) where the table of ARCHITECTURE.md has `{different[1]}`")
    return problems


def includes_of(files: dict[str, list[str]]) -> dict[str, set[str]]:
    return {name: {match[1] for line in lines if (match := INCLUDE.match(line)) and match[1] in files} for name, lines in files.items()}


def find_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """One cycle, a shortest one through its first file, of each set of files that reach one another (Tarjan)."""
    index, low, stack, on_stack, groups = {}, {}, [], set(), []
    sys.setrecursionlimit(10000)

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while not group or group[-1] != node:
                group.append(stack.pop())
                on_stack.discard(group[-1])
            if len(group) > 1 or node in graph[node]:
                groups.append(set(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    cycles = []
    for group in groups:
        start = min(group)
        came_from, queue = {start: None}, [start]
        for node in queue:  # breadth first: the shortest way back
            if start in graph[node]:
                path = []
                while node is not None:
                    path.append(node)
                    node = came_from[node]
                cycles.append(path[::-1] + [start])
                break
            for other in sorted(graph[node] & group):
                if other not in came_from:
                    came_from[other] = node
                    queue.append(other)
    return cycles


def check_cycles(files: dict[str, list[str]]) -> list[str]:
    return ["includes in a cycle: " + " -> ".join(f"src/{name}" for name in cycle) for cycle in find_cycles(includes_of(files))]


def says_why(lines: list[str], word: str) -> bool:
    """Comments may break the sentence over two lines."""
    text = re.sub(r"\s+", " ", " ".join(line.strip().lstrip("/").strip() for line in lines if line.strip().startswith("//")))
    return f"One {word} because" in text


def check_lengths(files: dict[str, list[str]]) -> list[str]:
    problems = []
    for name, lines in files.items():
        header = files.get(re.sub(r"\.(cpp|cu|cuh)$", ".h", name), [])
        if len(lines) > MOST_LINES and not says_why(lines, "file") and not says_why(header, "file"):
            problems.append(f'src/{name}: {len(lines)} lines, and no comment says "One file because ..."')
    return problems


def without_comment(line: str) -> str:
    return re.sub(r"\s*//.*$", "", line).strip()


def without_template_arguments(statement: str) -> str:
    while (shorter := re.sub(r"<[^<>]*>", "", statement)) != statement:
        statement = shorter
    return statement


def classes_of(lines: list[str]):
    """Name, comment above and number of data members of each class."""
    for start, line in enumerate(lines):
        end = start
        while re.match(r"\s*class \w", line) and not re.search(r"[{;]", line) and end + 1 < len(lines):
            end += 1
            line = f"{line} {lines[end].strip()}"
        if not (match := CLASS.match(line)):
            continue
        depth, statement, members = line.count("{") - line.count("}"), "", 0
        for inner in lines[end + 1:]:
            code = without_comment(inner)
            before = depth
            depth += code.count("{") - code.count("}")
            if depth <= 0:
                break
            if before == 1:
                statement = f"{statement} {code}".strip()
                if depth > 1:  # a body begins: a function or a nested type
                    statement = ""
                elif code.endswith((";", "}", ":")):
                    # Parentheses outside template arguments make it a function.
                    if MEMBER.match(statement) and "(" not in re.sub(r"( = |\{).*", "", without_template_arguments(statement)):
                        members += 1
                    statement = ""
            else:
                statement = ""
        above = start
        while above > 0 and lines[above - 1].lstrip().startswith(("//", "template")):
            above -= 1
        yield match["name"], lines[above:start], members


def check_classes(files: dict[str, list[str]]) -> list[str]:
    problems = []
    for name, lines in files.items():
        for class_name, comment, members in classes_of(lines):
            if members > MOST_MEMBERS and not says_why(comment, "class") and not says_why(lines, "class"):
                problems.append(f'src/{name}: {class_name} has {members} members, and no comment says "One class because ..."')
    return problems


def main() -> int:
    files = {str(path.relative_to(SRC)): path.read_text().splitlines() for path in sorted(SRC.rglob("*")) if path.suffix in SUFFIXES}
    violations = check_table(files) + check_cycles(files) + check_lengths(files) + check_classes(files)
    print("\n".join(violations) or f"includes follow the table ({len(allowed_folders()[0])} folders)")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())

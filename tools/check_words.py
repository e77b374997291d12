#!/usr/bin/env python3
"""Checks what a stranger reads first: openings of headers, length of lines, decision records, links between pages, figures.

    python tools/check_words.py    # prints violations, exits 1 if there are any

A header opens with a noun phrase that says what the thing is, not with a riddle ("What ...", "Who ..."). Pages have lines of at most
140 characters, rows of tables of at most 320. A decision record has a status and a date, and at most 60 lines; longer explanations are pages
under docs/how/. Every page under docs/ is linked from another one.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RIDDLE = re.compile(r"(What|Who|Where|How|Why|Which|When|Whether)\b")
COMMENT = re.compile(r"^[ \t]*//+[ \t]?(?P<text>.*)$")
MOST_CHARACTERS = 140
MOST_CHARACTERS_OF_A_ROW = 320
MOST_LINES_OF_A_DECISION = 60
STATUS = re.compile(r"^Status: (accepted|proposed|superseded by \d{4}|rejected)\W.*\b\d{4}-\d{2}-\d{2}\b", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]+)")
# Generated, and facts about other systems in the form in which they were collected.
UNCHECKED = ("docs/flags.md", "docs/reference/", "docs/spec/", "tests/")


def tracked(*patterns: str) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    return [name for name in names if name and (ROOT / name).exists()]


def check_openings() -> list[str]:
    problems = []
    for name in tracked("src/*.h", "src/*.cuh", "tests/*.h", "include/*.h"):
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            if match := COMMENT.match(line):
                if riddle := RIDDLE.match(match["text"]):
                    problems.append(f'{name}:{number}: opens with "{riddle[1]}"; say what the thing is, with a noun')
                break
    return problems


def check_lines() -> list[str]:
    problems = []
    for name in tracked("*.md"):
        if name.startswith(UNCHECKED):
            continue
        is_code = False
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            if line.lstrip().startswith("```"):
                is_code = not is_code
            most = MOST_CHARACTERS_OF_A_ROW if line.lstrip().startswith("|") or is_code else MOST_CHARACTERS
            if len(line) > most and not re.match(r"^\S*https?://\S+$", line.strip()):
                problems.append(f"{name}:{number}: {len(line)} characters, at most {most}")
    return problems


def check_decisions() -> list[str]:
    problems = []
    for name in tracked("docs/decisions/*.md"):
        text = (ROOT / name).read_text()
        if not re.match(r"\d{4}-", Path(name).name):
            continue
        if not STATUS.search(text):
            problems.append(f'{name}: no line "Status: accepted (or proposed), YYYY-MM-DD."')
        if len(text.splitlines()) > MOST_LINES_OF_A_DECISION:
            problems.append(f"{name}: {len(text.splitlines())} lines, at most {MOST_LINES_OF_A_DECISION}; a longer page belongs under docs/how/")
    return problems


def check_links() -> list[str]:
    """Every page is linked from some other page, and every relative link of a page leads to a file."""
    problems, linked = [], set()
    pages = tracked("*.md")
    for name in pages:
        for target in LINK.findall((ROOT / name).read_text()):
            path = os.path.normpath(os.path.join(os.path.dirname(name), target))
            if not (ROOT / path).exists():
                problems.append(f"{name}: links to {target}, which is not there")
            elif path != name:
                linked.add(path)
    for name in pages:
        if name.startswith("docs/") and name not in linked:
            problems.append(f"{name}: no page links to it")
    return problems


def check_figures() -> list[str]:
    """The README's table of speed is that of docs/benchmarks/h200.json."""
    problems = []
    figures = {row["name"]: row for row in json.loads((ROOT / "docs/benchmarks/h200.json").read_text())}
    for name, *cells in re.findall(r"^\| `([\w.-]+)`: .* \| ([\d.,]+) \| ([\d.,]+) \| ([\d.,]+) \|$", (ROOT / "docs/benchmarks/README.md").read_text(), re.MULTILINE):
        said = [float(cell.replace(",", "")) for cell in cells]
        measured = [figures[name][key] for key in ("value", "peer", "limit")]
        if said != measured:
            problems.append(f"docs/benchmarks/README.md: {name} says {said}, docs/benchmarks/h200.json {measured}")
    return problems


def main() -> int:
    problems = check_figures() + check_openings() + check_lines() + check_decisions() + check_links()
    print("\n".join(problems) if problems else "pages and headers read well")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks that whatever comments and documents cite is in the repository.

    python tools/check_citations.py          # prints citations that lead nowhere, exits 1 if there are any

    spec 17.4, spec sections 4.1 and 4.2, spec appendix B     docs/spec/algorithms.md
    STYLE section 6                                           docs/style.md
    reference slime.md 3.2, reference sglang.md 1.2           docs/reference/
    reliability contract R1, R2                               docs/reference/reliability.md
    docs/decisions/0061-ranks.md, tests/golden/README.md      the file itself

Citations may run over a line's end. Of a range ("12.2 to 12.4") both ends are looked up.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".md", ".sh"}
FOLDERS = ("src", "tests", "tools", "bench", "examples", "docs")
# Prose of their own, whose section numbers and paths are also those of other projects.
UNCHECKED = {Path("docs/spec/algorithms.md"), Path("tools/check_citations.py")}

NUMBER = r"\d+(?:\.\d+)*"
NUMBERS = rf"({NUMBER}(?:(?:, | and | to ){NUMBER})*)"
SPEC = re.compile(rf"\b[Ss]pec(?: sections?)? {NUMBERS}")
APPENDIX = re.compile(rf"\bspec(?: {NUMBERS} and)? appendix ([A-Z](?:\.\d+)?)")
BOOK = re.compile(rf"\b(STYLE) sections? {NUMBERS}")
REFERENCE = re.compile(rf"\breference ([a-z_]+\.(?:md|json))(?: (?:sections? )?{NUMBERS})?")
CONTRACT = re.compile(r"\breliability contract ((?:R\d)(?:, R\d)*)")
PATH = re.compile(r"(?<![\w/.])((?:docs|tools|tests|examples|bench|cmake|src)/[\w./-]+\.(?:md|py|json|sh|txt))\b")
PLACEHOLDER = re.compile(r"NNNN|FILE|NAME")
HEADING = re.compile(r"#+ (?:Appendix )?([A-Z]\.\d+|[A-Z](?=\.)|\d+(?:\.\d+)*)\b")


def headings(path: Path) -> set[str]:
    """Numbers of the headings, and "21.3" for item 3 of a list in a section 21 that has no subsections."""
    found, section = [], None
    for line in path.read_text().splitlines():
        if match := HEADING.match(line):
            section = match[1]
            found.append(section)
        elif section and (match := re.match(r"(\d+)\. ", line)):
            found.append(f"{section}.{match[1]}")
    return set(found)


def prose(text: str, suffix: str) -> str:
    """The file with its lines joined and the signs of comments taken away. Lines keep their number by NUL."""
    marks = r"^\s*(?:///?|\#)?[ ]?" if suffix != ".md" else r"^"
    lines = [re.sub(marks, "", line).rstrip() for line in text.splitlines()]
    return " \0".join(lines)


def citations(text: str):
    """(offset, document, section or None) of each citation."""
    flat = text.replace(" \0", " ")
    for match in SPEC.finditer(flat):
        for number in re.findall(NUMBER, match[1]):
            yield match.start(), "spec/algorithms.md", number
    for match in APPENDIX.finditer(flat):
        yield match.start(), "spec/algorithms.md", match[2]
    for match in BOOK.finditer(flat):
        for number in re.findall(NUMBER, match[2]):
            yield match.start(), f"{match[1].lower()}.md", number
    for match in REFERENCE.finditer(flat):
        yield match.start(), f"reference/{match[1]}", None
        for number in re.findall(NUMBER, match[2] or ""):
            yield match.start(), f"reference/{match[1]}", number
    for match in CONTRACT.finditer(flat):
        for name in match[1].split(", "):
            yield match.start(), "reference/reliability.md", name


def line_of(text: str, offset: int) -> int:
    """Of an offset into the text without its NULs."""
    at, line = 0, 1
    for part in text.split(" \0"):
        at += len(part) + 1
        if at > offset:
            return line
        line += 1
    return line


def main() -> int:
    known = {str(path.relative_to(DOCS)): headings(path) for path in DOCS.rglob("*.md")}
    contract = DOCS / "reference" / "reliability.md"
    known["reference/reliability.md"] |= set(re.findall(r"\*\*(R\d) ", contract.read_text()))
    problems, num_citations = [], 0
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")] + list(ROOT.glob("*.md"))
    for path in sorted(files):
        relative = path.relative_to(ROOT)
        if path.suffix not in SUFFIXES or not path.is_file() or relative in UNCHECKED:
            continue
        raw = path.read_text()
        text = prose(raw, path.suffix)
        for offset, document, section in citations(text):
            num_citations += 1
            where = f"{relative}:{line_of(text, offset)}"
            if not (DOCS / document).is_file():
                problems.append(f"{where}: docs/{document} is not there")
            elif section is not None and section not in known[document]:
                problems.append(f"{where}: docs/{document} has no section {section}")
        # Documents copied from elsewhere name paths of the projects that they are about.
        if relative.parts[:2] == ("docs", "reference"):
            continue
        for number, line in enumerate(raw.splitlines(), 1):
            for name in PATH.findall(line):
                if PLACEHOLDER.search(name):
                    continue
                num_citations += 1
                if not (ROOT / name).exists():
                    problems.append(f"{relative}:{number}: {name} is not there")
    print("\n".join(problems) or f"citations lead somewhere ({num_citations})")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

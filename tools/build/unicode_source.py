#!/usr/bin/env python3
"""Turns src/text/unicode/tables.txt into C++: the build calls it, offline, with what Python has.

    python3 tools/build/unicode_source.py FOLDER     # writes FOLDER/unicode_tables.cpp and FOLDER/python_text_tables.inc

tables.txt holds tables of rows of numbers, ordered by their first column:

    # a comment
    name [words of its maker]
     9:200 5:-100 :3,300*2

Each word is a row, in hexadecimal: the first number as its distance from the last row's (1 where nothing stands before the
colon), the second as its difference from the last row's, the others as they are. `*2`: two such rows. Programs of
tools/generate write the tables.
"""

import sys
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "src/text/unicode/tables.txt"
WIDTH = 140
MADE = "// Made of src/text/unicode/tables.txt by tools/build/unicode_source.py.\n"


def number(value: int) -> str:
    return format(value, "x")


def encoded(rows: list[tuple[int, ...]]) -> list[str]:
    words, last = [], (0, 0)
    for row in rows:
        gap = row[0] - last[0]
        word = ("" if gap == 1 else number(gap)) + ":" + ",".join(map(number, (row[1] - last[1], *row[2:])))
        if words and words[-1][0] == word:
            words[-1][1] += 1
        else:
            words.append([word, 1])
        last = row
    return [word + (f"*{times:x}" if times > 1 else "") for word, times in words]


def decoded(words: list[str]) -> list[tuple[int, ...]]:
    rows, last = [], (0, 0)
    for word in words:
        word, _, times = word.partition("*")
        gap, _, rest = word.partition(":")
        step, *others = (int(part, 16) for part in rest.split(","))
        for _ in range(int(times or "1", 16)):
            last = (last[0] + int(gap or "1", 16), last[1] + step, *others)
            rows.append(last)
    return rows


def read_tables(path: Path = DATA) -> tuple[dict[str, list[tuple[int, ...]]], dict[str, str]]:
    """The rows of each table, and the words of its maker."""
    words, makers, name = {}, {}, ""
    for line in path.read_text().splitlines():
        if line.startswith(" "):
            words[name] += line.split()
        elif line and not line.startswith("#"):
            name, _, makers[name] = line.partition(" ")
            words[name] = []
    return {name: decoded(rows) for name, rows in words.items()}, makers


def replace_tables(changed: dict[str, list[tuple[int, ...]]], maker: str, path: Path = DATA) -> None:
    """Writes these tables; the others stay as they are."""
    tables, makers = read_tables(path) if path.exists() else ({}, {})
    tables.update(changed)
    makers.update(dict.fromkeys(changed, maker))
    lines = ["# Unicode tables, as tools/build/unicode_source.py explains and reads them."]
    for name in sorted(tables):
        lines.append(f"{name} {makers[name]}")
        line = ""
        for word in encoded(tables[name]):
            if len(line) + 1 + len(word) > WIDTH:
                lines.append(line)
                line = ""
            line += " " + word
        lines.append(line)
    path.write_text("\n".join(lines) + "\n")


def wrapped(items: list[str], indent: str, between: str, width: int) -> str:
    lines, line = [], indent
    for item in items:
        if len(line) + len(between) + len(item) + 1 > width:
            lines.append(line)
            line = indent
        line += between + item + ","
    return "\n".join([*lines, line])


def pair(row: tuple[int, ...]) -> str:
    return "{" + ",".join(map(hex, row)) + "}"


def with_decimal_end(row: tuple[int, ...]) -> str:
    return f"{{{hex(row[0])},{row[1]}}}"


def mapping(row: tuple[int, ...]) -> str:
    return f"{hex(row[0])},{len(row) - 1},{','.join(map(hex, row[1:]))}"


def unicode_source(tables: dict[str, list[tuple[int, ...]]]) -> str:
    out = [MADE, '#include "text/unicode/tables.h"\n\nnamespace slime::text {\n']
    for name, kind, form in (
        ("PropertyRuns", "PropertyRun", with_decimal_end),
        ("CanonicalMappings", "char32_t", mapping),
        ("CompatibilityMappings", "char32_t", mapping),
        ("LowercaseMappings", "char32_t", mapping),
        ("CombiningClasses", "CombiningClass", with_decimal_end),
        ("Compositions", "Composition", pair),
    ):
        rows = wrapped([form(row) for row in tables[name]], "", "", 119)
        out.append(f"\nstatic constexpr {kind} k{name}Rows[] = {{\n{rows}\n}};\nconst std::span<const {kind}> k{name} = k{name}Rows;\n")
    return "".join([*out, "\n}  // namespace slime::text\n"])


def case_run(row: tuple[int, ...]) -> str:
    return "{{0x{:x}, 0x{:x}, {}, {}}}".format(*row)


def special(row: tuple[int, ...]) -> str:
    text = "".join(map(chr, row[1:])).encode()
    return f"{{0x{row[0]:x}, \"" + "".join(f"\\x{byte:02x}" for byte in text) + '"}'


def point_range(row: tuple[int, ...]) -> str:
    return "{{0x{:x}, 0x{:x}}}".format(*row)


def python_text_source(tables: dict[str, list[tuple[int, ...]]]) -> str:
    out = [MADE]
    for name, kind, form in (
        ("ToUpper", "CaseRun", case_run),
        ("ToUpperSpecial", "CaseSpecial", special),
        ("ToLower", "CaseRun", case_run),
        ("ToLowerSpecial", "CaseSpecial", special),
        ("ToTitle", "CaseRun", case_run),
        ("ToTitleSpecial", "CaseSpecial", special),
        ("NotPrintable", "PointRange", point_range),
        ("Alphabetic", "PointRange", point_range),
        ("Numeric", "PointRange", point_range),
    ):
        rows = wrapped([form(row) for row in tables["Python" + name]], "   ", " ", 100)
        out.append(f"constexpr {kind} k{name}[] = {{\n{rows}\n}};\n")
    return "\n".join(out)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    tables, _ = read_tables()
    for name, text in (("unicode_tables.cpp", unicode_source(tables)), ("python_text_tables.inc", python_text_source(tables))):
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)


if __name__ == "__main__":
    main()

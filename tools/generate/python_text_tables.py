#!/usr/bin/env python3
"""Writes src/text/unicode/python_text_tables.inc: what Python's str says about upper and lower case and about printing.

    python3 tools/generate/python_text_tables.py > src/text/unicode/python_text_tables.inc

Its rows carry the Unicode version of the Python that runs it.
"""

import sys
import unicodedata

POINTS = [p for p in range(0x80, 0x110000) if not 0xD800 <= p < 0xE000]


def case_rows(convert):
    """Runs of code points with one distance, as (first, last, step, delta)."""
    rows = []
    for point in POINTS:
        other = convert(chr(point))
        if len(other) != 1 or ord(other) == point:
            continue
        delta = ord(other) - point
        if rows and rows[-1][3] == delta:
            first, last, step, _ = rows[-1]
            gap = point - last
            if gap in (1, 2) and (step == 0 or step == gap):
                rows[-1] = (first, point, gap, delta)
                continue
        rows.append((point, point, 0, delta))
    return [(first, last, step or 1, delta) for first, last, step, delta in rows]


def special_rows(convert):
    return [(p, convert(chr(p)).encode()) for p in POINTS if len(convert(chr(p))) > 1]


def ranges(test):
    rows = []
    for point in range(0x80, 0x110000):
        if not test(point):
            continue
        if rows and rows[-1][1] == point - 1:
            rows[-1][1] = point
        else:
            rows.append([point, point])
    return rows


def emit(name, kind, rows, form):
    print(f"constexpr {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        item = " " + form(row) + ","
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line + "\n};\n")


def text(bytes_):
    return '"' + "".join(f"\\x{b:02x}" for b in bytes_) + '"'


def main():
    print(f"// Unicode {unicodedata.unidata_version}. Written by tools/generate/python_text_tables.py.\n")
    case = lambda row: "{{0x{:x}, 0x{:x}, {}, {}}}".format(*row)
    for name, convert in (("kToUpper", str.upper), ("kToLower", str.lower), ("kToTitle", str.title)):
        emit(name, "CaseRun", case_rows(convert), case)
        emit(name + "Special", "CaseSpecial", special_rows(convert), lambda row: f"{{0x{row[0]:x}, {text(row[1])}}}")
    pair = lambda row: f"{{0x{row[0]:x}, 0x{row[1]:x}}}"
    emit("kNotPrintable", "PointRange", ranges(lambda p: not chr(p).isprintable()), pair)
    emit("kAlphabetic", "PointRange", ranges(lambda p: chr(p).isalpha()), pair)
    emit("kNumeric", "PointRange", ranges(lambda p: chr(p).isnumeric()), pair)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes its part of src/text/unicode/tables.txt: what Python's str says about upper and lower case and about printing.

    python3 tools/generate/python_text_tables.py

Its rows carry the Unicode version of the Python that runs it.
"""

import sys
import unicodedata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "build"))
from unicode_source import replace_tables  # noqa: E402

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
    return [(p, *map(ord, convert(chr(p)))) for p in POINTS if len(convert(chr(p))) > 1]


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


def main():
    tables = {}
    for name, convert in (("Upper", str.upper), ("Lower", str.lower), ("Title", str.title)):
        tables[f"PythonTo{name}"] = case_rows(convert)
        tables[f"PythonTo{name}Special"] = special_rows(convert)
    tables["PythonNotPrintable"] = ranges(lambda p: not chr(p).isprintable())
    tables["PythonAlphabetic"] = ranges(lambda p: chr(p).isalpha())
    tables["PythonNumeric"] = ranges(lambda p: chr(p).isnumeric())
    replace_tables(tables, f"Unicode {unicodedata.unidata_version}")


if __name__ == "__main__":
    main()

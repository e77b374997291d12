"""tools/build/unicode_source.py: the Unicode tables as text, and the C++ that the build makes of them."""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "build"))
import unicode_source  # noqa: E402


def test_a_row_is_its_distance_from_the_one_before():
    rows = [(9, 0x200), (0xE, 0x100), (0xF, 0x103, 0x300), (0x10, 0x106, 0x300)]
    assert unicode_source.encoded(rows) == ["9:200", "5:-100", ":3,300*2"]
    assert unicode_source.decoded(["9:200", "5:-100", ":3,300*2"]) == rows


def test_the_tables_are_written_again_as_they_were_read(tmp_path):
    path = tmp_path / "tables.txt"
    shutil.copy(unicode_source.DATA, path)
    tables, makers = unicode_source.read_tables(path)
    for maker in set(makers.values()):
        unicode_source.replace_tables({name: tables[name] for name in tables if makers[name] == maker}, maker, path)
    assert path.read_bytes() == unicode_source.DATA.read_bytes()


def test_the_source_has_a_row_for_each_row():
    tables, _ = unicode_source.read_tables()
    text = unicode_source.unicode_source(tables)
    assert "{0x300,230}" in text and "0xc0,2,0x41,0x300," in text  # a grave accent; A with one
    assert text.count("{0x") == sum(len(tables[name]) for name in ("PropertyRuns", "CombiningClasses", "Compositions"))
    # LATIN SMALL LETTER SHARP S in capitals is two letters.
    assert '{0xdf, "\\x53\\x53"}' in unicode_source.python_text_source(tables)

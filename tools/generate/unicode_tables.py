#!/usr/bin/env python3
"""Writes its part of src/text/unicode/tables.txt: what the `tokenizers` library knows about each code point.

    python tools/generate/unicode_tables.py      # needs `pip install tokenizers==0.23.3`

The library takes its Unicode data from five places of different age (Oniguruma, Rust's standard library, its regex crate,
and two crates that stopped at Unicode 8 and 9). Token ids must be equal, so each question is put to the library itself,
for every code point, instead of to a Unicode database.
"""

import sys
import unicodedata
from pathlib import Path

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "build"))
from unicode_source import replace_tables  # noqa: E402

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, CODE_POINTS))
CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co").split()
# Bits above the five of the category; the order of src/text/unicode/unicode.h.
HAN, NUMERIC, WORD, SPACE, PUNCTUATION, MARK = (1 << bit for bit in range(5, 11))


def matched(pattern: str) -> list[int]:
    keep = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)
    return [CODE_POINTS[i] for _, (begin, end) in keep.pre_tokenize_str(TEXT) for i in range(begin, end)]


def pieces(splitter, c: int) -> int:
    return len(splitter.pre_tokenize_str(f"a{chr(c)}a"))


def properties() -> dict[int, int]:
    found = dict.fromkeys(CODE_POINTS, 0)
    for index, name in enumerate(CATEGORIES):
        if name != "Cn":
            for c in matched(rf"\p{{{name}}}+"):
                found[c] = index
    for c in matched(r"\p{Han}+"):
        found[c] |= HAN
    digits, words = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Whitespace()
    spaces, punctuation = pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()
    marks = set(CODE_POINTS) - set(map(ord, normalizers.StripAccents().normalize_str(TEXT)))
    for c in CODE_POINTS:
        found[c] |= (
            NUMERIC * (pieces(digits, c) == 3)
            | WORD * (pieces(words, c) == 1)
            | SPACE * (pieces(spaces, c) == 2)
            | PUNCTUATION * (pieces(punctuation, c) == 3)
            | MARK * (c in marks)
        )
    return found


def mappings(normalizer, skip=lambda c: False) -> dict[int, tuple[int, ...]]:
    out = {}
    for c in CODE_POINTS:
        if not skip(c) and (text := normalizer.normalize_str(chr(c))) != chr(c):
            out[c] = tuple(map(ord, text))
    return out


def combining_classes() -> dict[int, int]:
    """The library reorders a mark it knows: before a lower class, or behind a higher one."""
    nfd, out = normalizers.NFD(), {}
    for c in CODE_POINTS:
        value = unicodedata.combining(chr(c))
        if value > 1 and nfd.normalize_str(chr(c) + "\u0334") == "\u0334" + chr(c):
            out[c] = value
        elif value == 1 and nfd.normalize_str("\u0315" + chr(c)) == chr(c) + "\u0315":
            out[c] = value
    return out


def compositions(canonical: dict[int, tuple[int, ...]]) -> list[tuple[int, int, int]]:
    nfc, out = normalizers.NFC(), []
    for c in canonical:
        pair = unicodedata.decomposition(chr(c)).split()
        if len(pair) == 2 and nfc.normalize_str("".join(chr(int(part, 16)) for part in pair)) == chr(c):
            out.append((int(pair[0], 16), int(pair[1], 16), c))
    return sorted(out)


def main() -> None:
    def is_hangul(c: int) -> bool:
        return 0xAC00 <= c < 0xD7A4  # decomposed by arithmetic

    def rows_of(table: dict[int, tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [(c, *to) for c, to in table.items()]

    found, runs = properties(), []
    for c in CODE_POINTS:
        if not runs or found[c] != runs[-1][1]:
            runs.append((c, found[c]))
    canonical = mappings(normalizers.NFD(), is_hangul)
    compatible = {c: to for c, to in mappings(normalizers.NFKD(), is_hangul).items() if canonical.get(c) != to}
    replace_tables(
        {
            "PropertyRuns": runs,
            "CanonicalMappings": rows_of(canonical),
            "CompatibilityMappings": rows_of(compatible),
            "LowercaseMappings": rows_of(mappings(normalizers.Lowercase())),
            "CombiningClasses": list(combining_classes().items()),
            "Compositions": compositions(canonical),
        },
        f"tokenizers {tokenizers.__version__}",
    )


if __name__ == "__main__":
    main()

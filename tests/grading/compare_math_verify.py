"""Verdicts of math-verify beside those of `math` on math_pairs.jsonl.xz.

    compare_math_verify.py --slime build/release/slime        # the table, from the stored column
    compare_math_verify.py --write                            # asks math-verify and stores its verdicts
"""

import argparse
import json
import lzma
import pathlib
import subprocess

PAIRS = pathlib.Path(__file__).with_name("math_pairs.jsonl.xz")


def verdict(gold, answer):
    """As frameworks call it: both in a box, the label first."""
    from math_verify import parse, verify

    return bool(verify(parse("\\boxed{%s}" % gold), parse("\\boxed{%s}" % answer)))


def scores(slime, pairs):
    lines = [json.dumps({"response": "\\boxed{%s}" % p["answer"], "label": p["gold"]}) for p in pairs]
    done = subprocess.run([slime, "score", "--rm-type", "math"], input="\n".join(lines), capture_output=True, text=True)
    return [json.loads(line)["score"] == 1 for line in done.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slime", help="the program: compares")
    parser.add_argument("--write", action="store_true", help="stores the verdicts of the installed math-verify")
    arguments = parser.parse_args()
    pairs = [json.loads(line) for line in lzma.decompress(PAIRS.read_bytes()).decode().split("\n") if line]
    if arguments.write:
        for pair in pairs:
            pair["math_verify"] = verdict(pair["gold"], pair["answer"])
        PAIRS.write_bytes(lzma.compress("".join(json.dumps(pair) + "\n" for pair in pairs).encode(), preset=9 | lzma.PRESET_EXTREME))
    ours = scores(arguments.slime, pairs) if arguments.slime else [None] * len(pairs)
    print("| pairs | number | math-verify | math |\n| --- | --- | --- | --- |")
    for is_equal, name in ((True, "equal, taken for equal"), (False, "not equal, taken for equal")):
        chosen = [(pair, own) for pair, own in zip(pairs, ours) if pair["equal"] == is_equal]
        theirs = sum(pair["math_verify"] for pair, _ in chosen)
        own = sum(own for _, own in chosen) if arguments.slime else "-"
        print(f"| {name} | {len(chosen)} | {theirs} | {own} |")


if __name__ == "__main__":
    main()

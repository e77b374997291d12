#!/usr/bin/env python3
"""Encoding speed of `slime tokenize` beside the `tokenizers` package, one thread each, same texts, same machine.

    python bench/cpu/tokenizer.py --slime build/release/slime --model DIR [--text FILE] [--repeats 3]

Prints one JSON object. Seconds are processor time, user and system, so that other work on the machine counts little. `slime` is timed as the difference of two runs of the command (many copies of the text and one),
so that loading is not counted; reading and writing JSON lines is. `tokenizers` is timed around encode_batch alone, with
parallelism off and a warm word cache of its own. Worst strings are 1 MiB each. Ids of both are compared.
"""

import argparse
import json
import os
import resource
import subprocess
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402

MIB = 1 << 20
WORST = {
    "letter a": "a" * MIB,
    "spaces": " " * MIB,
    "newlines": "\n" * MIB,
    "digits": "7" * MIB,
    "punctuation": "!" * MIB,
    "capitals": "A" * MIB,
    "mixed case": "aB" * (MIB // 2),
    "cjk": "\u4e2d" * (MIB // 3),
    "combining marks": "e" + "\u0301" * (MIB // 2),
    "emoji joiners": "\U0001f469\u200d" * (MIB // 7),
    "random letters": "".join(chr(97 + (i * i * 7919 + i // 3) % 26) for i in range(MIB)),
    "spaces then newline": " " * (MIB - 1) + "\n",
}


def default_text() -> str:
    root = Path(__file__).resolve().parents[2]
    parts = [p.read_text(errors="replace") for pattern in ("*.md", "src/**/*.cpp", "src/**/*.h", "tools/*.py") for p in sorted(root.glob(pattern))]
    return "".join(parts)[: 2 * MIB]


def child_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_slime(slime: str, model: str, texts: list[str]) -> tuple[float, list[list[int]]]:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    begin = child_seconds()
    done = subprocess.run([slime, "tokenize", "--model", model, "--no-special-tokens"], input=lines, capture_output=True, text=True, check=True)
    seconds = child_seconds() - begin
    return seconds, [json.loads(line)["ids"] for line in done.stdout.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--slime", default="build/release/slime")
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", help="file to encode; default: this project's sources")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--copies", type=int, default=256, help="of the text for slime; tokenizers gets a 64th")
    args = parser.parse_args()
    text = Path(args.text).read_text() if args.text else default_text()
    chunks = [text[i : i + 16384] for i in range(0, len(text), 16384)]
    many = chunks * args.copies
    reference = Tokenizer.from_file(str(Path(args.model) / "tokenizer.json"))
    few = chunks * max(1, args.copies // 64)
    mib_of = len(text.encode()) / MIB / len(chunks)

    expected = [e.ids for e in reference.encode_batch(chunks, add_special_tokens=False)]
    _, got = run_slime(args.slime, args.model, chunks)
    best_reference, best_slime = float("inf"), float("inf")
    for _ in range(args.repeats):
        begin = time.process_time()
        reference.encode_batch(few, add_special_tokens=False)
        best_reference = min(best_reference, time.process_time() - begin)
        one, _ = run_slime(args.slime, args.model, chunks[:1])
        all_, _ = run_slime(args.slime, args.model, many)
        best_slime = min(best_slime, all_ - one)
    slime_rate, reference_rate = mib_of * len(many) / best_slime, mib_of * len(few) / best_reference
    load, _ = run_slime(args.slime, args.model, ["a"])
    worst = {name: round(run_slime(args.slime, args.model, [string])[0] - load, 3) for name, string in WORST.items()}
    print(json.dumps({
        "model": Path(args.model).name, "mib": round(mib_of * len(many), 2), "same_ids": got == expected,
        "slime_mib_per_s": round(slime_rate, 2), "tokenizers_mib_per_s": round(reference_rate, 2),
        "ratio": round(slime_rate / reference_rate, 2), "start_and_load_s": round(load, 3), "worst_mib_s": worst,
    }))


if __name__ == "__main__":
    main()

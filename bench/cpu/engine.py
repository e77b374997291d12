#!/usr/bin/env python3
"""`slime bench engine` beside its peer on this machine, one after the other: batch 32 and a single stream.

    python bench/cpu/engine.py --model DIR [--slime build/release/slime] [--python PYTHON_WITH_TRANSFORMERS] > result.json

Each workload is 128 tokens in, 128 out. "speedup" is slime's output tokens per second over the peer's better precision.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def run(command: list[str]) -> dict:
    print("+", " ".join(command), file=sys.stderr)
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--slime", default=str(HERE.parent.parent / "build/release/slime"))
    parser.add_argument("--python", default=sys.executable)
    args = parser.parse_args()
    workloads = {}
    for name, requests in (("batch_32", 32), ("single_stream", 1)):
        shape = ["--model", args.model, "--requests", str(requests), "--input-len", "128", "--output-len", "128"]
        ours = run([args.slime, "bench", "engine", *shape, "--dtype", "bfloat16"])
        theirs = run([args.python, str(HERE / "generate_transformers.py"), *shape])
        workloads[name] = {
            "slime": ours,
            "transformers": theirs,
            "speedup": ours["output_tokens_per_second"] / theirs["best"]["output_tokens_per_second"],
        }
    print(json.dumps(workloads, indent=2))


if __name__ == "__main__":
    main()

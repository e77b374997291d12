"""Streams of `slime serve` under load, on this machine's cores, with a tiny model:

    python bench/serving/load.py --streams 512 --seconds 60            # gaps between tokens
    python bench/serving/load.py --streams 2048 --max-running 512 --max-queued 64   # what is refused, and whether the others suffer
    python bench/serving/load.py --streams 64 --seconds 20             # CPU per token
    python bench/serving/load.py --streams 512 --seconds 300 --warm-up 30 --kv-cache-gib 0.03   # memory

Starts a server and `slime bench server-streams` (build/release/slime-bench), whose JSON line it prints. Client and server share the cores;
figures of a machine that does something else meanwhile are no figures. A server of others: `slime bench server-streams --url ...`.
"""

import argparse
import json
import string
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/http"))

from server_process import PROGRAM, Server  # noqa: E402
from test_serve import make_model  # noqa: E402


def make_speaking_model(scratch):
    """A random llama each of whose tokens is text: bytes that are no character yet would be tokens without an event."""
    model = make_model(scratch)
    path = model / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocab = {token: number for token, number in tokenizer["model"]["vocab"].items() if token.isascii()}
    used = {*vocab.values(), *(token["id"] for token in tokenizer["added_tokens"])}
    pairs = (first + second for first in string.ascii_lowercase for second in string.ascii_lowercase)
    free = [number for number in range(json.loads((model / "config.json").read_text())["vocab_size"]) if number not in used]
    tokenizer["model"]["vocab"] = {**vocab, **{next(pairs): number for number in free}}
    path.write_text(json.dumps(tokenizer))
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="default: a random llama of tests/fixtures")
    parser.add_argument("--streams", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--warm-up", type=float, default=5)
    parser.add_argument("--tokens", type=int, default=256, help="of each answer")
    parser.add_argument("--max-running", type=int, default=512)
    parser.add_argument("--max-queued", type=int, default=65536)
    parser.add_argument("--kv-cache-gib", type=float, default=0.25, help="touched page by page as it is used: memory is flat after that")
    parser.add_argument("flags", nargs="*", help="further flags of the server, behind --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model = options.model or str(make_speaking_model(Path(scratch)))
        with Server(model, "--max-running-requests", str(options.max_running), "--max-queued-requests", str(options.max_queued),
                    "--context-length", "1024", "--kv-cache-gib", str(options.kv_cache_gib), "--max-connections", "8192", *options.flags,
                    env={"OMP_NUM_THREADS": "1"}) as server:
            return subprocess.run([PROGRAM, "bench", "server-streams", "--url", server.url, "--streams", str(options.streams),
                                   "--seconds", str(options.seconds), "--warm-up", str(options.warm_up), "--tokens", str(options.tokens),
                                   "--process", str(server.process.pid)]).returncode


if __name__ == "__main__":
    sys.exit(main())

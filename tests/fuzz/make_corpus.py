#!/usr/bin/env python3
"""Writes seeds for the fuzz targets from the repository's own test data: OUT/TARGET/*.

    python3 tests/fuzz/make_corpus.py build/fuzz/corpus

A fuzzer that starts from valid files gets behind the first check; from nothing it would spend its minute finding "{".
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "fixtures" / "models"
TOKENIZERS = ROOT / "tests" / "fixtures" / "tokenizers"
LARGEST_SEED_BYTES = 60_000  # -max_len of ./dev fuzz

REQUESTS = [
    {"text": "ab", "sampling_params": {"temperature": 0.5, "max_new_tokens": 3, "stop": ["b"]}, "stream": True},
    {"input_ids": [[0, 1], [2]], "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2},
    {"model": "tiny", "messages": [{"role": "user", "content": "ab"}], "max_tokens": 4, "n": 2, "logprobs": True},
    {"model": "tiny", "prompt": "ab", "logit_bias": {"1": -1.5}, "echo": True, "stream_options": {"include_usage": True}},
]
HEADS = [
    "GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /generate HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
    "POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "4;x=y\r\nabcd\r\n0\r\nTrailer: 1\r\n\r\n",
]
RESPONSES = [
    "so \\boxed{\\frac{1}{2}}\0 0.5",
    "Answer: 1,234.50\0 1234.5",
    "\\boxed{x^2+2x+1}\0 (x+1)^2",
    "\\boxed{\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}}\0 [[1,2],[3,4]]",
    "the cat sat\0 the cat",
    '{"input": [{"role": "user", "content": "1+1"}], "label": 2, "metadata": {"rm_type": "math"}}',
]
NUM_REWARD_CHOICES = 11  # of reward_fuzz.cpp: eight rewards, equality, a row, a ledger


def seeds(target):
    if target == "chat_template_fuzz":
        yield from (file.read_bytes() for file in TOKENIZERS.rglob("*.jinja"))
        for file in TOKENIZERS.rglob("tokenizer_config.json"):
            template = json.loads(file.read_text()).get("chat_template")
            if isinstance(template, str):
                yield template.encode()
        for case in json.loads((ROOT / "tests" / "golden" / "jinja_cases.json").read_text()).get("cases", []):
            yield str(case.get("template", "")).encode()
    elif target == "tokenizer_fuzz":
        yield b"plain text 123 \xe4\xbd\xa0"
        yield from (b"Hello  world 42\n" + file.read_bytes() for file in TOKENIZERS.rglob("tokenizer.json"))
        for file in TOKENIZERS.rglob("tokenizer.json"):
            yield b"Hello  world 42\n" + without_most_of_the_vocabulary(file)
    elif target == "model_config_fuzz":
        yield from (file.read_bytes() for file in MODELS.rglob("config.json"))
    elif target == "safetensors_fuzz":
        yield safetensors({"a": ("F32", [2, 2], bytes(16)), "b": ("BF16", [3], bytes(6)), "c": ("I64", [], bytes(8))})
        yield safetensors({})
    elif target == "http_generate_request_fuzz":
        yield from (json.dumps(request).encode() for request in REQUESTS)
    elif target == "http_request_head_fuzz":
        yield from (head.encode() for head in HEADS)
    elif target == "frame_channel_fuzz":
        frames = [b"SLMF" + bytes([kind, 0, 0, 0]) + len(body).to_bytes(8, "little") + body for kind, body in ((4, b"2 busy"), (2, b""))]
        yield from (*frames, b"".join(frames))
    elif target == "reward_fuzz":
        for choice in range(NUM_REWARD_CHOICES):
            yield from (bytes([choice]) + response.encode() for response in RESPONSES)


def without_most_of_the_vocabulary(file):
    tokenizer = json.loads(file.read_text())
    model = tokenizer["model"]
    model["vocab"] = dict(list(model["vocab"].items())[:300])
    model["merges"] = [pair for pair in model["merges"][:20] if "".join(pair if isinstance(pair, list) else pair.split()) in model["vocab"]]
    return json.dumps(tokenizer).encode()


def safetensors(tensors):
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def main():
    out = Path(sys.argv[1])
    for source in sorted(Path(__file__).parent.glob("*_fuzz.cpp")):
        folder = out / source.stem
        folder.mkdir(parents=True, exist_ok=True)
        count = 0
        for seed in seeds(source.stem):
            if len(seed) <= LARGEST_SEED_BYTES:
                (folder / f"seed_{count:03}").write_bytes(seed)
                count += 1
        if count == 0:
            sys.exit(f"{source.stem}: no seeds; add some to {Path(__file__).name}")


if __name__ == "__main__":
    main()

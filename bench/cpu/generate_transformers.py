#!/usr/bin/env python3
"""Peer of `slime bench engine`: the same requests through transformers' generate(), as one JSON line.

    python bench/cpu/generate_transformers.py --model DIR [--random-weights] [--requests 32] [--input-len 128] [--output-len 128]

Random prompts of one length, greedy, no early end, static batch (all prompts have the same length, so nothing is padded).
Both precisions are tried unless --dtype names one, and with experts all of transformers' implementations of them; each is run
--rounds times after a short warm-up and the fastest counts.
Needs torch and transformers; slime does not.
"""

import argparse
import json
import sys
import time

import peer_model
import torch

EXPERTS = ["eager", "grouped_mm"]


def measure(model, args, dtype: str) -> dict:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, model.config.vocab_size, (args.requests, args.input_len), generator=generator)
    mask = torch.ones_like(ids)

    def generate(new_tokens: int) -> float:
        start = time.perf_counter()
        out = model.generate(ids, attention_mask=mask, do_sample=False, min_new_tokens=new_tokens, max_new_tokens=new_tokens,
                             pad_token_id=0)
        assert out.shape == (args.requests, args.input_len + new_tokens)
        return time.perf_counter() - start

    generate(2)
    prefill = generate(1)
    seconds = min(generate(args.output_len) for _ in range(args.rounds))
    step = (seconds - prefill) / max(1, args.output_len - 1)
    return {
        "dtype": dtype,
        "seconds": seconds,
        "output_tokens_per_second": args.requests * args.output_len / seconds,
        "prefill_seconds": prefill,
        "prefill_tokens_per_second": args.requests * args.input_len / prefill,
        "decode_step_ms": step * 1e3,
        "decode_tokens_per_second": args.requests / step,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peer_model.add_options(parser)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--input-len", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"])
    args = parser.parse_args()
    runs = []
    for dtype in [args.dtype] if args.dtype else ["bfloat16", "float32"]:
        model = peer_model.load(args, dtype).eval()
        model.generation_config.eos_token_id = None
        experts_forms = [None]
        if getattr(model.config, "num_experts", 0):
            # The third copies the weights of each token's experts: 20 GB for the prompts of a batch.
            experts_forms = EXPERTS + (["batched_mm"] if args.requests == 1 else [])
        for experts in experts_forms:
            if experts:
                model.set_experts_implementation(experts)
            try:
                with torch.inference_mode():
                    runs.append(measure(model, args, dtype) | ({"experts": experts} if experts else {}))
            except (RuntimeError, NotImplementedError) as error:  # not every form has products of every precision on a CPU
                print(f"{experts} in {dtype}: {error}", file=sys.stderr)
    best = max(runs, key=lambda run: run["output_tokens_per_second"])
    print(json.dumps({"benchmark": "engine", "peer": "transformers", "requests": args.requests, "input_length": args.input_len,
                      "output_length": args.output_len, "threads": torch.get_num_threads(), "best": best, "runs": runs}))


if __name__ == "__main__":
    main()

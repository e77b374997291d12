#!/usr/bin/env python3
"""One supervised training step of a model in plain transformers on the CPU: the peer of `slime bench train-step`.

    python bench/cpu/train_step_transformers.py --model DIR [--tokens 4096] [--sequence-length 512] [--threads 2]

Forms: float32, bfloat16 weights, and float32 weights under bfloat16 autocast; eager and scaled-dot-product attention;
micro-batches of all sequences and of one. AdamW with fused=True. Prints one JSON line per form, then the best.
"""

import argparse
import json
import time

import torch
from transformers import AutoModelForCausalLM


def step_seconds(model, optimizer, ids, micro_batch, autocast, repeats):
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        for rows in ids.split(micro_batch):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                loss = model(input_ids=rows, labels=rows, use_cache=False).loss
            (loss * len(rows) / len(ids)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
    return min(times[1:])  # the first warms up


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--sequence-length", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    count = max(1, args.tokens // args.sequence_length)
    best = None
    for weights, autocast in (("float32", False), ("float32", True), ("bfloat16", False)):
        for attention in ("sdpa", "eager"):
            model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, weights),
                                                         attn_implementation=attention).train()
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
            ids = torch.randint(0, model.config.vocab_size, (count, args.sequence_length))
            for micro_batch in sorted({1, count}):
                seconds = step_seconds(model, optimizer, ids, micro_batch, autocast, args.repeats)
                row = {"peer": "transformers", "weights": weights, "autocast": autocast, "attention": attention,
                       "micro_batch": micro_batch, "tokens": ids.numel(), "step_seconds": round(seconds, 3),
                       "tokens_per_second": round(ids.numel() / seconds, 1)}
                print(json.dumps(row), flush=True)
                best = row if best is None or seconds < best["step_seconds"] else best
            del model, optimizer
    print(json.dumps({"best": best}))


if __name__ == "__main__":
    main()

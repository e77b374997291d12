#!/usr/bin/env python3
"""One supervised training step in plain transformers on the CPU: the peer of `slime bench train-step`, as one JSON line.

    python bench/cpu/train_step_transformers.py --model DIR [--random-weights] [--tokens 4096] [--sequence-length 512]

Forms: float32, bfloat16 weights, and float32 weights under bfloat16 autocast, each with micro-batches of one sequence
and of all; scaled-dot-product attention, AdamW with fused=True, clipping. --forms picks some of them (see FORMS).
The best step after a warm-up counts; "best" is the fastest form.
"""

import argparse
import json
import sys
import time

import peer_model
import torch

FORMS = {"float32": ("float32", False), "autocast": ("float32", True), "bfloat16": ("bfloat16", False)}


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peer_model.add_options(parser)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--sequence-length", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    args = parser.parse_args()
    torch.manual_seed(1)
    count = max(1, args.tokens // args.sequence_length)
    runs = []
    for form in args.forms:
        weights, autocast = FORMS[form]
        model = peer_model.load(args, weights, attn_implementation="sdpa").train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
        ids = torch.randint(0, model.config.vocab_size, (count, args.sequence_length))
        for micro_batch in sorted({1, count}):
            seconds = step_seconds(model, optimizer, ids, micro_batch, autocast, args.repeats)
            runs.append({"form": form, "micro_batch": micro_batch, "step_seconds": round(seconds, 3),
                         "tokens_per_second": round(ids.numel() / seconds, 1)})
            print(runs[-1], file=sys.stderr, flush=True)
        del model, optimizer
    best = min(runs, key=lambda run: run["step_seconds"])
    print(json.dumps({"benchmark": "train-step", "peer": "transformers", "tokens": count * args.sequence_length,
                      "sequence_length": args.sequence_length, "threads": torch.get_num_threads(), "best": best, "runs": runs}))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""One GRPO step in plain transformers and torch on the CPU: the peer of `slime bench grpo-step`, as one JSON line.

    python bench/cpu/grpo_step_peer.py --model DIR [--random-weights] [--trl] [--prompts 8] [--samples 8] [--new-tokens 96]

Generate with model.generate (KV cache, no early stop), score the responses again for old log-probs, then one update:
forward, clipped loss, backward in micro-batches, clip, AdamW. With --trl the `trl` package's own GRPOTrainer runs the
same sizes instead (it needs the tokenizer beside the weights). "runs" has the seconds of each phase.
"""

import argparse
import json
import time

import peer_model
import torch
from transformers import AutoTokenizer


def log_probs(model, ids, prompt_length):
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=ids.shape[1] - prompt_length + 1).logits[:, :-1]
    targets = ids[:, prompt_length:].unsqueeze(-1)
    return torch.log_softmax(logits.float(), -1).gather(-1, targets).squeeze(-1)


def plain_step(args):
    model = peer_model.load(args, args.dtype, attn_implementation="sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    prompts = torch.randint(0, model.config.vocab_size, (args.prompts, args.prompt_tokens))
    prompts = prompts.repeat_interleave(args.samples, 0)
    times = {}

    start = time.perf_counter()
    model.eval()
    with torch.no_grad():
        ids = model.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=True, top_k=0,
                             min_new_tokens=args.new_tokens, max_new_tokens=args.new_tokens,
                             pad_token_id=model.config.eos_token_id)
    times["generate_seconds"] = time.perf_counter() - start

    start = time.perf_counter()
    with torch.no_grad():
        old = torch.cat([log_probs(model, rows, args.prompt_tokens) for rows in ids.split(args.micro_batch)])
    times["old_log_probs_seconds"] = time.perf_counter() - start

    start = time.perf_counter()
    model.train()
    rewards = torch.rand(args.prompts, args.samples)
    advantages = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-6)).flatten()
    for rows, old_rows, adv in zip(ids.split(args.micro_batch), old.split(args.micro_batch),
                                   advantages.split(args.micro_batch)):
        ratio = (log_probs(model, rows, args.prompt_tokens) - old_rows).exp()
        adv = adv.unsqueeze(1)
        loss = -torch.minimum(ratio * adv, ratio.clamp(0.8, 1.28) * adv).mean(1).sum() / len(ids)
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    times["train_seconds"] = time.perf_counter() - start
    return times


def trl_step(args):
    import tempfile

    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    text = tokenizer.decode(torch.randint(100, 4000, (args.prompt_tokens,)).tolist())
    with tempfile.TemporaryDirectory() as scratch:
        config = GRPOConfig(output_dir=scratch, use_cpu=True, bf16=args.dtype == "bfloat16", max_steps=2, report_to=[],
                            num_generations=args.samples, max_completion_length=args.new_tokens,
                            per_device_train_batch_size=args.prompts * args.samples, save_strategy="no",
                            logging_steps=1, beta=0.0)
        trainer = GRPOTrainer(model=args.model, args=config, train_dataset=Dataset.from_dict({"prompt": [text] * 64}),
                              reward_funcs=lambda completions, **_: [float(len(c) % 7) for c in completions])
        start = time.perf_counter()
        trainer.train()
        return {"mean_of_two_steps": (time.perf_counter() - start) / 2}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    peer_model.add_options(parser)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], help="default: both, the faster counts")
    parser.add_argument("--trl", action="store_true")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    step = trl_step if args.trl else plain_step
    runs = {}
    for dtype in [args.dtype] if args.dtype else ["bfloat16", "float32"]:
        args.dtype = dtype
        runs[dtype] = step(args)
    best = min(runs, key=lambda dtype: sum(runs[dtype].values()))
    print(json.dumps({"benchmark": "grpo-step", "peer": "trl" if args.trl else "transformers", "dtype": best,
                      "prompts": args.prompts, "samples": args.samples, "prompt_tokens": args.prompt_tokens,
                      "new_tokens": args.new_tokens, "threads": torch.get_num_threads(),
                      "step_seconds": round(sum(runs[best].values()), 3),
                      "runs": {dtype: {name: round(seconds, 3) for name, seconds in times.items()} for dtype, times in runs.items()}}))


if __name__ == "__main__":
    main()

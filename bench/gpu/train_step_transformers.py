#!/usr/bin/env python3
"""A training step in transformers on the GPU: the peer of `slime bench train-step-4b`, one JSON line per form.

    python bench/gpu/train_step_transformers.py [--model qwen3-4b] [--forms eager compiled ...]

The same work: the model's shape from workloads.json with random weights, 8 sequences of 2,048 tokens (of one length, so a
batch is packed already), output layer, GRPO's clipped loss on every token but the first, gradient norm clipped to 1, AdamW.
All that a peer may choose is chosen in its favour: it computes no entropy, its attention is the fastest of PyTorch's
(cuDNN's, then flash), its optimizer is the fused one, and of several sizes of micro-batch the fastest counts.

  eager, compiled                weights, gradients and moments in bfloat16: 8 bytes a weight, where slime keeps 18
  eager-master, compiled-master  float32 weights under bfloat16 autocast: 16 bytes a weight, the precision slime trains in

"compiled" is torch.compile of each layer, of the final norm and of output layer and loss.
"""

import argparse
import gc
import json
import statistics
import time
from pathlib import Path

import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel

FORMS = {"eager": (False, False), "compiled": (True, False), "eager-master": (False, True), "compiled-master": (True, True)}
BOUND = 0.03  # of the random weights
ATTENTION = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def make_model(shape, has_master):
    config = transformers.AutoConfig.for_model(**shape)
    torch.set_default_dtype(torch.float32 if has_master else torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    torch.set_default_dtype(torch.float32)
    model = model.to(torch.float32 if has_master else torch.bfloat16).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-BOUND, BOUND)
    return model


def clipped_loss(hidden, head, targets, advantages, denominator):
    """GRPO's loss where the old policy is the present one: the ratio is 1, its gradient is not."""
    logits = torch.nn.functional.linear(hidden, head).float()
    log_probs = logits.gather(-1, targets[..., None])[..., 0] - logits.logsumexp(-1)
    ratio = (log_probs - log_probs.detach()).exp()
    surrogate = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return -surrogate.sum() / denominator


def compile_parts(model):
    for layer in model.model.layers:
        layer.compile()
    model.model.norm.compile()
    return torch.compile(clipped_loss)


def step_seconds(step, repeats):
    times = []
    for _ in range(repeats + 2):  # two warm up: they compile and allocate
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def measure(shape, form, args):
    is_compiled, has_master = FORMS[form]
    torch.manual_seed(1)
    torch._dynamo.reset()
    model = make_model(shape, has_master)
    loss_of = compile_parts(model) if is_compiled else clipped_loss
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
    ids = torch.randint(0, shape["vocab_size"], (args.sequences, args.sequence_length), device="cuda")
    signs = torch.tensor([1.0, -1.0] * (args.sequences // 2), device="cuda")
    denominator = args.sequences * (args.sequence_length - 1)
    parameters = sum(p.numel() for p in model.parameters())
    flops = ids.numel() * (
        6 * parameters
        + 6 * shape["num_hidden_layers"] * args.sequence_length * shape["num_attention_heads"] * shape["head_dim"]
    )

    def step(micro_batch):
        for rows, sign in zip(ids.split(micro_batch), signs.split(micro_batch), strict=True):
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=has_master):
                hidden = model.model(input_ids=rows, use_cache=False).last_hidden_state
                advantages = sign[:, None].expand(-1, args.sequence_length - 1)
                loss = loss_of(hidden[:, :-1], model.lm_head.weight, rows[:, 1:], advantages, denominator)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    tried, peaks = {}, {}
    for micro_batch in args.micro_batches:
        torch.cuda.reset_peak_memory_stats()
        try:
            with sdpa_kernel(ATTENTION, set_priority=True):
                tried[micro_batch] = step_seconds(lambda count=micro_batch: step(count), args.repeats)
            peaks[micro_batch] = torch.cuda.max_memory_allocated() / 2**30
        except torch.OutOfMemoryError:
            optimizer.zero_grad(set_to_none=True)
            tried[micro_batch] = None
        gc.collect()
        torch.cuda.empty_cache()
    times = {count: seconds for count, seconds in tried.items() if seconds}
    line = {"name": args.model.replace("qwen3", "train-step"), "peer": f"transformers {transformers.__version__}", "form": form}
    if not times:
        return line | {"value": None, "micro_batches": tried}
    best = min(times, key=times.get)
    return line | {
        "value": flops / times[best] / 1e12, "unit": "TFLOP/s", "step_ms": 1e3 * times[best], "sequences_of_a_micro_batch": best,
        "micro_batches_ms": {count: seconds and round(1e3 * seconds, 1) for count, seconds in tried.items()},
        "peak_gib": peaks[best], "parameters": parameters, "counted_tflop": flops / 1e12,
        "torch": torch.__version__, "gpu": torch.cuda.get_device_name(),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen3-4b")
    parser.add_argument("--workloads-file", type=Path, default=Path(__file__).with_name("workloads.json"))
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--micro-batches", nargs="+", type=int, default=[2, 4, 8], help="sequences of each, all are tried")
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--sequence-length", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch._dynamo.config.recompile_limit = 64
    shape = json.loads(args.workloads_file.read_text())["models"][args.model]
    for form in args.forms:
        print(json.dumps(measure(shape, form, args)), flush=True)
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

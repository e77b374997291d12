"""The model of the peers' benchmarks: a checkpoint, or its shape with fresh weights."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def add_options(parser):
    parser.add_argument("--model", required=True, help="model directory")
    parser.add_argument("--random-weights", action="store_true", help="fresh weights; the directory needs no more than a config.json")
    parser.add_argument("--threads", type=int, default=0, help="0: torch decides")


def load(args, dtype: str, **options):
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.random_weights:
        config = AutoConfig.from_pretrained(args.model)
        return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype), **options)
    return AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, dtype), **options)

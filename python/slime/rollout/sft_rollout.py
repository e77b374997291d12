"""Rows as samples: `--rollout-function-path slime.rollout.sft_rollout.generate_rollout` is the program's own; this is for
code that calls it."""

from slime.rollout.base_types import RolloutFnTrainOutput
from slime.utils.mask_utils import MultiTurnLossMaskGenerator
from slime.utils.processing_utils import load_tokenizer

__all__ = ["generate_rollout"]

_generators = {}


def _generator(args):
    key = (args.hf_checkpoint, getattr(args, "loss_mask_type", None) or "qwen")
    if key not in _generators:
        _generators[key] = MultiTurnLossMaskGenerator(load_tokenizer(key[0], trust_remote_code=True), tokenizer_type=key[1])
    return _generators[key]


def generate_rollout(args, rollout_id, data_source, evaluation=False):
    """The next rollout_batch_size conversations, tokens and loss mask from the first trained token on, reward 0."""
    if evaluation:
        raise ValueError("rows are not evaluated by this function; --eval-function-path names one that does")
    groups = data_source.get_samples(args.rollout_batch_size)
    for group in groups:
        (sample,) = group
        tools = (sample.metadata or {}).get("tools")
        tokens, mask = _generator(args).get_loss_mask(sample.prompt, tools=tools)
        if 1 not in mask:
            raise ValueError(f"sample {sample.index}: no token of its conversation is trained")
        begin = mask.index(1)
        sample.tokens, sample.loss_mask = list(tokens), list(mask[begin:])
        sample.response_length, sample.reward = len(mask) - begin, 0
        sample.status = type(sample).Status.COMPLETED
    return RolloutFnTrainOutput(samples=groups)

"""Samples whose function set the text of a response and not its tokens: they get those that the run's tokenizer makes of it.

They are seldom the very tokens that the engine sampled, and have no log-probs; who has both hands them over by
`Sample.append_response_tokens`.
"""

import asyncio
import logging

from slime.utils.http_utils import post
from slime.utils.types import Sample

__all__ = ["texts_alone", "tokenise_text", "tokenise_texts"]

logger = logging.getLogger(__name__)
_has_told = False


def texts_alone(result):
    """Of a sample, or lists of them: those that have a response's text and none of its tokens."""
    if isinstance(result, (list, tuple)):
        return [sample for each in result for sample in texts_alone(each)]
    is_one = isinstance(result, Sample) and isinstance(result.response, str) and result.response
    is_failed = is_one and result.status in (Sample.Status.FAILED, Sample.Status.ABORTED)
    return [result] if is_one and not result.response_length and not is_failed else []


async def _tokens(args, text):
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/tokenize"
    return (await post(url, {"prompt": text, "add_special_tokens": False}))["tokens"]


async def tokenise_text(args, sample) -> None:
    """Puts the response's tokens behind those of the prompt, all of them trained."""
    global _has_told
    if not sample.tokens:
        if not isinstance(sample.prompt, str):
            raise ValueError("Sample.tokens is empty: a sample that is made anew copies `tokens` of the one it was made for")
        sample.tokens = await _tokens(args, sample.prompt)
    response = await _tokens(args, sample.response)
    sample.tokens = list(sample.tokens) + response
    sample.response_length, sample.rollout_log_probs = len(response), None
    if sample.loss_mask is not None and len(sample.loss_mask) != len(response):
        sample.loss_mask = None
    if not _has_told:
        _has_told = True
        logger.warning(
            "samples came with a response's text and without its tokens: the text is tokenised, which need not give the "
            "tokens that were sampled, and there are no log-probs of them; Sample.append_response_tokens keeps both"
        )


async def tokenise_texts(args, samples) -> None:
    await asyncio.gather(*(tokenise_text(args, sample) for sample in samples))

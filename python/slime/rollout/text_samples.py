"""Samples whose function set the text of a response and not its tokens: they get those that the run's tokenizer makes of it.

They are seldom the very tokens that the engine sampled, and have no log-probs; who has both hands them over by
`Sample.append_response_tokens`.
"""

import asyncio
import functools
import logging
import threading

from slime.utils.http_utils import post
from slime.utils.native_tokenizer import NativeTokenizer
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


@functools.lru_cache(maxsize=None)
def _template_of(checkpoint):
    return NativeTokenizer(checkpoint), threading.Lock()


def _rendered(checkpoint, messages):
    """Token ids of a conversation as the program's chat template renders it, up to where the answer begins."""
    tokenizer, lock = _template_of(checkpoint)
    with lock:
        return tokenizer.apply_chat_template(messages, add_generation_prompt=True)


async def tokenise_text(args, sample, prompt=None) -> None:
    """Puts the response's tokens behind those of the prompt, all of them trained. `prompt`: as it was given, where the
    function may have gone on with the sample's own list of messages."""
    global _has_told
    if not sample.tokens:
        prompt = sample.prompt if prompt is None else prompt
        if isinstance(prompt, str):
            sample.tokens = await _tokens(args, prompt)
        else:
            loop = asyncio.get_running_loop()
            sample.tokens = await loop.run_in_executor(None, _rendered, args.hf_checkpoint, prompt)
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

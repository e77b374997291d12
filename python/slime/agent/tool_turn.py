"""A tool's turn in a sample that generate draws turn by turn: its tokens are the engine's own, and are not trained."""

from slime.utils.http_utils import post
from slime.utils.types import Sample

__all__ = ["append_tool_turn"]


async def append_tool_turn(args, sample, text, budget):
    """Appends `text` behind the response, for the next turn. False, and the sample is truncated, where `budget`, of the whole
    response, leaves no room behind it."""
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/tokenize"
    ids = (await post(url, {"prompt": text, "add_special_tokens": False}))["tokens"]
    if sample.response_length + len(ids) >= budget:
        sample.status = Sample.Status.TRUNCATED
        return False
    sample.append_response_tokens(tokens=ids, trainable=False, text=text)
    sample.status = Sample.Status.PENDING
    return True

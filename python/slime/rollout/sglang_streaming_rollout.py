"""One turn of generation as the stock one; named by scripts that asked for streamed answers.

The original streams so that an abort keeps the tokens that were there. This program's engine answers an aborted
request with them, so there is nothing that a stream would save.
"""

from slime.rollout.sglang_rollout import generate

__all__ = ["generate_streaming"]


async def generate_streaming(args, sample, sampling_params):
    return await generate(args, sample, sampling_params)

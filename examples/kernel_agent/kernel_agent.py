"""Writes kernels, reads what came of them, writes better ones: three tries, of which the last counts; "done" keeps the one before.

Each turn is the body of a C++ function. It is compiled, tested and measured (measure.py), and what is said about it comes back as
tokens that are not trained.
"""

import math

from slime.agent.tool_turn import append_tool_turn
from slime.rollout.sglang_rollout import generate as one_turn
from slime.utils.types import Sample

from examples.kernel_agent.measure import measure

TRIES = 3
MAX_SAID = 40  # characters
BEST_SPEEDUP = 6  # and more earns the whole reward
TOOL_TURN = "\n<|im_start|>tool\n{}<|im_end|>\n<|im_start|>assistant\n"


async def generate(args, sample, sampling_params, evaluation=False):
    budget = sampling_params["max_new_tokens"]  # of the whole response, what is said about kernels too
    operation = sample.metadata["operation"]
    sample.metadata["tries"] = []
    for turn in range(TRIES):
        begin = len(sample.response)
        sample = await one_turn(args, sample, dict(sampling_params))
        if sample.status != Sample.Status.COMPLETED:
            return sample
        body = sample.response[begin:]
        if body.strip() == "done":
            return sample
        found = await measure(operation, body)
        said = found["said"].replace("<|", "< |")[:MAX_SAID]
        sample.metadata["tries"].append({"kernel": body, "said": said, "speedup": found["speedup"]})
        if turn == TRIES - 1:
            return sample
        if not await append_tool_turn(args, sample, TOOL_TURN.format(said), budget):
            return sample
    return sample


def reward_of(speedup):
    """0 for a kernel that is not right, 0.1 for one as fast as the naive one, more with the logarithm of its speed-up, at most 1."""
    if speedup <= 0:
        return 0.0
    return 0.1 + 0.9 * min(1.0, max(0.0, math.log2(speedup) / math.log2(BEST_SPEEDUP)))


async def reward(args, sample, **kwargs):
    tries = sample.metadata["tries"]
    is_whole = sample.status == Sample.Status.COMPLETED and tries
    return reward_of(tries[-1]["speedup"]) if is_whole else 0.0

"""A code interpreter for mathematics: the model writes Python in a fenced block, `slime sandbox` runs it, what it prints comes back.

A turn without a block is the answer, in a box; there are three blocks at most. The tokens of the output are not trained, and no token of
the model is ever decoded and encoded again.
"""

import re

from slime.agent.local_sandbox import run_code
from slime.agent.tool_turn import append_tool_turn
from slime.rollout.sglang_rollout import generate as one_turn
from slime.utils.types import Sample

MAX_BLOCKS = 3
MAX_OUTPUT = 48  # characters
LIMITS = {"seconds": 5, "memory_mb": 256, "processes": 8, "output_kb": 16}
TOOL_TURN = "\n<|im_start|>tool\n{}<|im_end|>\n<|im_start|>assistant\n"


def block_of(turn):
    found = re.search(r"```python\n(.*?)\n?```", turn, re.DOTALL)
    return found and found[1]


def shown(outcome):
    """What the model sees: the output, or else the last line of the error, or why it was ended."""
    text = outcome["output"].strip()
    if outcome["ending"] != "exited":
        text = outcome["reason"]
    elif outcome["code"] != 0:
        text = (outcome["error"].strip().splitlines() or ["error"])[-1]
    # Marks of the conversation in it are plain text.
    return text.replace("<|", "< |")[:MAX_OUTPUT] or "nothing"


async def generate(args, sample, sampling_params, evaluation=False):
    budget = sampling_params["max_new_tokens"]  # of the whole response, the outputs' tokens too
    sample.metadata["runs"] = []
    for turn in range(MAX_BLOCKS + 1):
        said = len(sample.response)
        sample = await one_turn(args, sample, dict(sampling_params))
        code = block_of(sample.response[said:])
        if sample.status != Sample.Status.COMPLETED or code is None or turn == MAX_BLOCKS:
            return sample
        output = shown(await run_code(code, limits=LIMITS))
        sample.metadata["runs"].append([code, output])
        if not await append_tool_turn(args, sample, TOOL_TURN.format(output), budget):
            return sample
    return sample


async def reward(args, sample, **kwargs):
    """1 for the right number in the last turn's box. What a program printed is no answer."""
    answer = sample.response.rpartition("<|im_start|>assistant\n")[2]
    return float(answer == f"\\boxed{{{sample.label}}}")

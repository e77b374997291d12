"""Tools over the Model Context Protocol: each row of the data names the servers that its conversation may use.

A turn that is a JSON object {"name": ..., "arguments": {...}} is a call. It goes to the server of the row that has a tool of that name;
what comes back is appended as tokens that are not trained. A server is started once for each host and serves all conversations.
"""

import asyncio
import json
import sys
from pathlib import Path

from slime.agent.tool_turn import append_tool_turn
from slime.rollout.sglang_rollout import generate as one_turn
from slime.utils.types import Sample

from examples.mcp_tools.stdio_client import McpError, StdioClient

MAX_CALLS = 3
MAX_SAID = 40  # characters
SERVER = Path(__file__).with_name("server.py")
TOOL_TURN = "\n<|im_start|>tool\n{}<|im_end|>\n<|im_start|>assistant\n"

_clients = {}  # words behind server.py: the task that starts its client


async def client_of(words):
    key = tuple(words)
    task = _clients.get(key)
    if task is None or (task.done() and (task.exception() or task.result().is_over)):
        task = _clients[key] = asyncio.create_task(StdioClient([sys.executable, SERVER, *words]).__aenter__())
    return await asyncio.shield(task)


def call_of(turn):
    """(name, arguments), or None for a turn that is no call."""
    try:
        call = json.loads(turn)
        return call["name"], call["arguments"]
    except (ValueError, KeyError, TypeError):
        return None


async def use_tool(servers, name, arguments):
    for words in servers:
        client = await client_of(words)
        if any(tool["name"] == name for tool in client.tools):
            try:
                return await client.call(name, arguments)
            except (McpError, asyncio.TimeoutError) as error:
                return f"failed: {error}"
    return f"there is no tool {name}"


async def generate(args, sample, sampling_params, evaluation=False):
    budget = sampling_params["max_new_tokens"]  # of the whole response, what tools say too
    sample.metadata["calls"] = []
    for turn in range(MAX_CALLS + 1):
        begin = len(sample.response)
        sample = await one_turn(args, sample, dict(sampling_params))
        words = sample.response[begin:]
        call = call_of(words)
        if sample.status != Sample.Status.COMPLETED or call is None or turn == MAX_CALLS:
            return sample
        said = (await use_tool(sample.metadata["servers"], *call)).replace("<|", "< |")[:MAX_SAID]
        sample.metadata["calls"].append([words, said])
        if not await append_tool_turn(args, sample, TOOL_TURN.format(said), budget):
            return sample
    return sample


async def reward(args, sample, **kwargs):
    """1 for the right number in the last turn's box."""
    answer = sample.response.rpartition("<|im_start|>assistant\n")[2]
    return float(answer == f"\\boxed{{{sample.label}}}")

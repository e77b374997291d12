"""Search with tools: the model asks a BM25 index as often as it likes (four turns at most), then answers in a box.

A turn that begins with "search:" is a query. What the index finds is appended as tokens that are not trained; no token of the
model is ever decoded and encoded again.
"""

import json

from slime.agent.tool_turn import append_tool_turn
from slime.rollout.sglang_rollout import generate as one_turn
from slime.utils.types import Sample

from examples.search.bm25 import Bm25

MAX_TURNS = 4
TOOL_TURN = "\n<|im_start|>tool\n{}<|im_end|>\n<|im_start|>assistant\n"

_index = None


def search(args, query):
    """The best row of --search-corpus (JSON lines with title and text) as text. Words of a title count twice."""
    global _index
    if _index is None:
        with open(args.search_corpus, encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        texts = [f"{row['title']}: {row['text']}" for row in rows]
        _index = Bm25(f"{row['title']} {text}" for row, text in zip(rows, texts, strict=True)), texts
    index, texts = _index
    found = index.search(query)
    return texts[found[0]] if found else "nothing"


def query_of(turn):
    head, colon, query = turn.partition(":")
    return query.strip() if colon and head.strip() == "search" else None


async def generate(args, sample, sampling_params, evaluation=False):
    budget = sampling_params["max_new_tokens"]  # of the whole response, the tool's tokens too
    sample.metadata["searches"] = []
    for turn in range(MAX_TURNS):
        said = len(sample.response)
        sample = await one_turn(args, sample, dict(sampling_params))
        query = query_of(sample.response[said:])
        if sample.status != Sample.Status.COMPLETED or query is None or turn == MAX_TURNS - 1:
            return sample
        found = search(args, query)
        sample.metadata["searches"].append([query, found])
        if not await append_tool_turn(args, sample, TOOL_TURN.format(found), budget):
            return sample
    return sample


def answer_of(response):
    """What stands in the last box; None without one."""
    _, box, rest = response.rpartition("\\boxed{")
    answer, brace, _ = rest.partition("}")
    return answer if box and brace else None


async def reward(args, sample, **kwargs):
    return float(answer_of(sample.response) == sample.label)

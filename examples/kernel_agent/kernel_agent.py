"""Trains a model that writes kernels: slime train ... --custom-generate-function-path examples.kernel_agent.kernel_agent.generate

A row is {"prompt": [{"role": "user", "content": question}], "metadata": {"task": "softmax_rows"}} (make_data.py). A session of the
run's own server keeps the tokens of every turn as they were sampled (docs/agents.md): all of them are trained, and what the
model hears about its kernels is not. Flags of this example: scores.py.
"""

import asyncio
import functools
import json

from slime.agent.server_sessions import ServerSessions
from slime.utils.http_utils import HttpStatusError, post
from slime.utils.types import Sample

from examples.kernel_agent import tasks
from examples.kernel_agent.grade import grade
from examples.kernel_agent.scores import Rules, trajectory_score
from examples.kernel_agent.turns import ContextFull, write_kernel

MAX_GRADED = 4096  # kernels that are remembered
_graded = {}  # (file of the task, code, rules): the asyncio task that grades it


async def graded(task, code, rules):
    """What the grader says, as a dictionary. The same text is graded once; whoever asks meanwhile waits for that."""
    key = (task.path, code, rules)
    if key not in _graded:
        while len(_graded) >= MAX_GRADED:
            _graded.pop(next(iter(_graded)))
        _graded[key] = asyncio.create_task(grade(task, code, rules.backend, gpu=rules.gpu))
        _graded[key].add_done_callback(lambda done: done.cancelled() or not done.exception() or _graded.pop(key, None))
    return (await asyncio.shield(_graded[key])).as_dict()


@functools.cache
def find_task(name, folder):
    return tasks.find(name, folder=folder or None)


def messages_of(sample):
    """The question, behind what the row says before it."""
    prompt = sample.prompt
    if not isinstance(prompt, list) or not prompt or prompt[-1].get("role") != "user":
        raise ValueError(
            "a row's prompt should be a list of messages, the last one a user's, and --apply-chat-template left out"
        )
    return prompt


def in_session(url):
    """`ask` of turns.py, in a session."""

    async def ask(messages):
        try:
            answer = await post(f"{url}/v1/chat/completions", {"messages": messages})
        except HttpStatusError as error:
            if error.status == 400 and json.loads(error.text).get("error", {}).get("code") == "context_length_exceeded":
                raise ContextFull from error
            raise
        choice = answer["choices"][0]
        return choice["message"]["content"] or "", choice["finish_reason"] == "stop"

    return ask


async def generate(args, sample, sampling_params, evaluation=False):
    rules = Rules.of(args)
    question = messages_of(sample)
    task = find_task(sample.metadata["task"], rules.tasks)
    sessions = ServerSessions(f"http://{args.sglang_router_ip}:{args.sglang_router_port}")
    limit = args.eval_max_context_len if evaluation else None
    session = await sessions.open(
        sampling_defaults=sampling_params, max_context_tokens=limit or args.rollout_max_context_len or 0
    )
    try:
        turns = await write_kernel(
            in_session(sessions.url(session)),
            question,
            lambda code: graded(task, code, rules),
            rules.backend,
            rules.max_turns,
            sample.metadata.get("is_brief", False),
        )
    except BaseException:
        await sessions.drop(session)
        raise
    reward = trajectory_score([turn["score"] for turn in turns], rules)
    metadata = {**sample.metadata, "turns": turns}
    samples = await sessions.finish(session, base_sample=sample, reward=reward, extra_metadata=metadata)
    if not samples:  # the question alone fills the context
        sample.status = Sample.Status.FAILED
        return sample
    return samples

"""Trains what an agent of the OpenAI protocol runs on: slime train ... --custom-generate-function-path examples/coding_agent/solve.py

The agent is a program of its own (agent.py). Its base_url is an adapter that is served here, in the host of this function:
the adapter hands each turn to the run's engine and keeps the tokens that were drawn. What the agent leaves behind is judged
by cases that it has not seen, in a sandbox of their own.
"""

import asyncio
import itertools
import json
import os
import sys
from pathlib import Path

from slime.agent.adapters import OpenAIAdapter
from slime.agent.aiohttp_threaded import run_app_in_thread
from slime.agent.local_sandbox import run_code
from slime.rollout.sglang_rollout import GenerateState
from slime.utils.types import Sample

from task import JUDGE, make_task

TURN_TOKENS = 32
CONTEXT_TOKENS = 500
_numbers = itertools.count()
_served = None
_agent = None


def adapter_of(args):
    """(adapter, its address); it listens from the first call on."""
    global _served
    if _served is None:
        adapter = OpenAIAdapter(
            tokenizer=GenerateState(args).tokenizer,
            sglang_url=f"http://{args.sglang_router_ip}:{args.sglang_router_port}",
            tool_parser="glm",
        )
        handle = run_app_in_thread(adapter.app, host="127.0.0.1")
        _served = adapter, f"http://127.0.0.1:{handle.port}/v1"
    return _served


class AgentProcess:
    """agent.py, and who waits for which of its answers."""

    def __init__(self, process):
        self.process = process
        self.waiting = {}
        self.reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls):
        script = Path(__file__).with_name("agent.py")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
        return cls(await asyncio.create_subprocess_exec(sys.executable, str(script), env=environment, limit=1 << 20, **pipes))

    async def _read(self):
        while line := await self.process.stdout.readline():
            answer = json.loads(line)
            waiting = self.waiting.pop(answer["id"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        code = await self.process.wait()
        for waiting in self.waiting.values():
            if not waiting.done():
                waiting.set_exception(RuntimeError(f"the agent ended with exit code {code}"))

    async def ask(self, task):
        answer = asyncio.get_running_loop().create_future()
        self.waiting[task["id"]] = answer
        self.process.stdin.write(json.dumps(task).encode() + b"\n")
        await self.process.stdin.drain()
        try:
            return await answer
        finally:
            self.waiting.pop(task["id"], None)


async def agent_process():
    """The one agent, or another one where it has ended."""
    global _agent
    if _agent is None or _agent.done() and _agent.result().reading.done():
        _agent = asyncio.ensure_future(AgentProcess.start())
    return await asyncio.shield(_agent)


async def judge(task, source):
    if source == task.files["f.py"]:
        return 0.0
    judged = await run_code(source + JUDGE, cases=[task.hidden_case()], limits={"seconds": 5, "memory_mb": 256})
    return float(judged["passed"])


async def generate(args, sample, sampling_params):
    task = make_task(sample.label)
    adapter, url = adapter_of(args)
    session = f"{os.getpid()}-{next(_numbers)}"
    params = {**sampling_params, "max_new_tokens": TURN_TOKENS}
    adapter.open_session(session, sampling_defaults=params, max_context_tokens=CONTEXT_TOKENS)
    body = task.files["f.py"].splitlines()[1].strip()
    order = {"id": session, "base_url": url, "api_key": session, "files": task.files, "prompt": body}
    try:
        answer = await (await agent_process()).ask(order)
        if "problem" in answer:
            raise RuntimeError(answer["problem"])
        reward = await judge(task, answer["files"]["f.py"])
    except BaseException:
        await adapter.drop_session(session)
        raise
    metadata = {**sample.metadata, "calls": answer["calls"]}
    samples = await adapter.finish_session(session, base_sample=sample, reward=reward, extra_metadata=metadata)
    if not samples:
        sample.status = Sample.Status.FAILED
        return sample
    return samples

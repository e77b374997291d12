"""Trains what an agent of the OpenAI protocol runs on: slime train ... --custom-generate-function-path examples/coding_agent/solve.py

The agent is a program of its own (agent.py). Its base_url is a session of the run's own server, which keeps the tokens of
each turn as they were drawn: this function renders and parses nothing. What the agent leaves behind is judged by cases that it
has not seen, in a sandbox of their own.
"""

import asyncio
import itertools
import json
import os
import sys
from pathlib import Path

from slime.agent.local_sandbox import run_code
from slime.agent.server_sessions import ServerSessions
from slime.utils.types import Sample

from task import JUDGE, make_task

TURN_TOKENS = 32
CONTEXT_TOKENS = 500
_numbers = itertools.count()
_agent = None


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
    sessions = ServerSessions(f"http://{args.sglang_router_ip}:{args.sglang_router_port}")
    session = await sessions.open(
        f"{os.getpid()}-{next(_numbers)}",
        sampling_defaults={**sampling_params, "max_new_tokens": TURN_TOKENS},
        max_context_tokens=CONTEXT_TOKENS,
        tool_parser="glm45",
    )
    body = task.files["f.py"].splitlines()[1].strip()
    url = f"{sessions.url(session)}/v1"
    order = {"id": session, "base_url": url, "api_key": session, "files": task.files, "prompt": body}
    try:
        answer = await (await agent_process()).ask(order)
        if "problem" in answer:
            raise RuntimeError(answer["problem"])
        reward = await judge(task, answer["files"]["f.py"])
    except BaseException:
        await sessions.drop(session)
        raise
    metadata = {**sample.metadata, "calls": answer["calls"]}
    samples = await sessions.finish(session, base_sample=sample, reward=reward, extra_metadata=metadata)
    if not samples:
        sample.status = Sample.Status.FAILED
        return sample
    return samples

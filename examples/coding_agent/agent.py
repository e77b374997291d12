#!/usr/bin/env python3
"""A coding agent: it knows nothing of training. It speaks to whatever serves the OpenAI chat API, and its tools act in a
sandbox of their own (docs/sandbox.md).

Tasks come as JSON lines {"id", "base_url", "api_key", "files", "prompt"}; each is answered, when the model has called its
last tool, by {"id", "files", "calls"} or {"id", "problem"}. Many are worked on at once.
"""

import asyncio
import json
import sys

from openai import AsyncOpenAI, BadRequestError
from slime.agent.local_sandbox import LocalSandbox

CALLS = 9
RUN_TEST = "python3 -S -B test.py"


def function(name, description, **parameters):
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    function("test", "Runs the tests."),
    function("edit", "Replaces the body of the function.", line="what it returns"),
]


class Workplace:
    """The tools, on files in a sandbox."""

    def __init__(self, sandbox):
        self.sandbox = sandbox

    async def use(self, name, arguments):
        if name == "test":
            _, output, error = await self.sandbox.exec(RUN_TEST, timeout=10)
            lines = (output or error).strip().splitlines() or ["nothing was printed"]
            return lines[-1][:60]
        if name == "edit" and isinstance(arguments.get("line"), str):
            text = await self.sandbox.read_file("/work/f.py")
            head = text.splitlines()[0]
            await self.sandbox.write_file("/work/f.py", f"{head}\n    return {arguments['line']}\n")
            return "ok"
        return "no such tool"


def arguments_of(call):
    """Of a call that was cut off they are no JSON: the server passes on what the model wrote."""
    try:
        arguments = json.loads(call.function.arguments)
    except ValueError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


async def solve(client, task):
    # The address is that of a session: all that this task draws is recorded under it.
    client = client.with_options(api_key=task["api_key"], base_url=task["base_url"])
    messages = [{"role": "user", "content": task["prompt"]}]
    num_calls = 0
    async with LocalSandbox(limits={"memory_mb": 256}) as sandbox:
        for name, text in task["files"].items():
            await sandbox.write_file(f"/work/{name}", text)
        workplace = Workplace(sandbox)
        while num_calls < CALLS:
            try:
                completion = await client.chat.completions.create(model="slime-actor", messages=messages, tools=TOOLS)
            except BadRequestError as error:
                if error.code != "context_length_exceeded":
                    raise
                break
            message = completion.choices[0].message
            if not message.tool_calls:
                break
            messages.append(message.model_dump(include={"role", "content", "tool_calls"}))
            for call in message.tool_calls:
                num_calls += 1
                found = await workplace.use(call.function.name, arguments_of(call))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": found})
        files = {name: await sandbox.read_file(f"/work/{name}") for name in task["files"]}
    return {"files": files, "calls": num_calls}


async def work(client, task):
    try:
        answer = await solve(client, task)
    except Exception as error:
        answer = {"problem": f"{type(error).__name__}: {error}"}
    print(json.dumps({"id": task["id"], **answer}), flush=True)


async def main():
    client = AsyncOpenAI(api_key="none", base_url="http://127.0.0.1", max_retries=0)
    reader = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks = set()
    while line := await reader.readline():
        task = asyncio.create_task(work(client, json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    asyncio.run(main())

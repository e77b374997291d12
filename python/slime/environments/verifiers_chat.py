"""A harness of verifiers that talks in this process: no program is started, and nothing that the model writes is run.

The tools are those of the task's servers. It stands in the place of verifiers' own default, which gives the model a shell of this machine.
"""

import json
from contextlib import AsyncExitStack

import httpx
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harness import Harness
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.runtimes import ProgramResult

__all__ = ["ChatHarness"]


class ChatHarnessConfig(HarnessConfig):
    pass


class ChatHarness(Harness[ChatHarnessConfig]):
    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages.extend(message_to_wire(message) for message in prompt or [])
        servers = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(httpx.AsyncClient(timeout=None, headers={"Authorization": f"Bearer {secret}"}))
            tools, dispatch, connections = await connect_mcp({"mcpServers": servers}, stack)
            while True:
                asked = {"model": ctx.model, "messages": messages, **({"tools": tools} if tools else {})}
                answer = await client.post(f"{endpoint}/chat/completions", json=asked)
                if answer.status_code != 200:
                    is_end = trace.stop_condition is not None or "context" in answer.text
                    return ProgramResult(0 if is_end else 1, "", answer.text)
                message = answer.json()["choices"][0]["message"]
                messages.append(message)
                if not message.get("tool_calls"):
                    return ProgramResult(0, "", "")
                for call in message["tool_calls"]:
                    content = await self._result(call["function"], connections, dispatch)
                    messages.append({"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": content})

    async def _result(self, function, connections, dispatch):
        if function["name"] not in dispatch:
            return f"error: there is no tool {function['name']}"
        try:
            arguments = json.loads(function["arguments"] or "{}")
            if not isinstance(arguments, dict):
                raise ValueError("they are no object")
        except ValueError as error:
            return f"error: the arguments are no JSON object ({error})"
        return await call_mcp(connections, dispatch, function["name"], arguments)

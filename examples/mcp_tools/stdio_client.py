"""A client of the Model Context Protocol over a server's standard input and output: handshake, tools/list, tools/call.

modelcontextprotocol.io/specification/2025-06-18: JSON-RPC 2.0, a message in a line. Calls may overlap; answers come in any order.
"""

import asyncio
import itertools
import json

PROTOCOL = "2025-06-18"
LIMIT_BYTES = 1 << 20  # of one message


class McpError(RuntimeError):
    """The server ended, or answered with an error of the protocol."""


class StdioClient:
    """`tools` is the server's list: [{"name", "description", "inputSchema"}]."""

    def __init__(self, command, seconds=10.0):
        self._command, self._seconds = [str(word) for word in command], seconds
        self._numbers = itertools.count(1)
        self._waiting = {}  # number of a request: the future of its answer
        self._process = None
        self.tools = []

    async def __aenter__(self):
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe, limit=LIMIT_BYTES)
        self._reader = asyncio.create_task(self._read())
        try:
            client = {"name": "slime", "version": "1"}
            await self._ask("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client})
            self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})
            cursor = {}
            while cursor is not None:
                page = await self._ask("tools/list", cursor)
                self.tools += page["tools"]
                cursor = {"cursor": page["nextCursor"]} if page.get("nextCursor") else None
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(self, exc_type, exc, tb):
        """As the specification has it: the input is closed; who does not go then is killed."""
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 2)
        except asyncio.TimeoutError:
            self._process.kill()
            await self._process.wait()
        self._reader.cancel()

    @property
    def is_over(self):
        return self._reader.done()

    def _write(self, message):
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _ask(self, method, params):
        if self.is_over:
            raise McpError(f"{self._command[-1]}: the server has ended")
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            await self._process.stdin.drain()
            return await asyncio.wait_for(answer, self._seconds)
        finally:
            self._waiting.pop(number, None)

    async def _read(self):
        try:
            while line := await self._process.stdout.readline():
                message = json.loads(line)
                answer = self._waiting.get(message.get("id"))
                if "method" in message and "id" in message:  # the server asks: there is nothing here to ask for
                    refusal = {"code": -32601, "message": "this client offers nothing"}
                    self._write({"jsonrpc": "2.0", "id": message["id"], "error": refusal})
                elif answer is None or answer.done():  # a notification, or an answer that nobody waits for
                    continue
                elif "error" in message:
                    answer.set_exception(McpError(str(message["error"].get("message"))))
                else:
                    answer.set_result(message["result"])
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(McpError(f"{self._command[-1]}: the server has ended"))

    async def call(self, name, arguments):
        """What the tool says, as text; also where the tool itself calls it an error."""
        result = await self._ask("tools/call", {"name": name, "arguments": arguments})
        return "\n".join(part["text"] for part in result["content"] if part.get("type") == "text")

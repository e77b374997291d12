"""An engine for tests: /generate answers with the tokens of a script, in SGLang's form. Runs on a thread of its own."""

import asyncio

from slime.agent.aiohttp_threaded import run_app_in_thread
from slime.agent.http_app import Application, Response


class StubEngine:
    """`outputs` is a list of (tokens, text, finish reason), taken in turn; without one left it waits for an abort. What was asked is in `requests`."""

    def __init__(self, outputs):
        self.outputs = list(outputs)
        self.requests, self.aborts, self.num_cancelled = [], [], 0
        app = Application()
        app.add("POST", "/generate", self._generate)
        app.add("POST", "/abort_request", self._abort)
        self.handle = run_app_in_thread(app, host="127.0.0.1")
        self.url = f"http://127.0.0.1:{self.handle.port}"

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.handle.stop()

    async def _generate(self, request):
        self.requests.append(request.json())
        if not self.outputs:
            await self._wait_for_an_abort()
        tokens, text, finish = self.outputs.pop(0) if self.outputs else ([], "", "abort")
        meta = {
            "output_token_logprobs": [[-0.5 - i, token, None] for i, token in enumerate(tokens)],
            "finish_reason": {"type": finish},
            "weight_version": "4",
        }
        return Response.of_json({"text": text, "meta_info": meta})

    async def _wait_for_an_abort(self):
        try:
            while not self.aborts:
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise

    async def _abort(self, request):
        self.aborts.append(request.json())
        return Response("")

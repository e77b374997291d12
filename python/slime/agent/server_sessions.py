"""Sessions that the engine's own server keeps (docs/server.md): the agent speaks to the server, its turns become samples.

    sessions = ServerSessions(f"http://{args.sglang_router_ip}:{args.sglang_router_port}")
    name = await sessions.open(sampling_defaults=sampling_params)
    run_agent(base_url=sessions.url(name) + "/v1", api_key=name)        # any client, in any process
    samples = await sessions.finish(name, base_sample=sample, reward=1.0)

The server renders prompts, parses answers and recognises turns; nothing of that is done here, and no tokenizer is needed.
"""

import asyncio
import json
from urllib.parse import quote

from slime import turns
from slime.agent.trajectory import samples_of_turns
from slime.utils.http_utils import HttpStatusError, post, request

__all__ = ["ServerSessions"]

# Of sampling_params: how a response is written, which is each request's own matter.
_NOT_DEFAULTS = ("skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim")


class ServerSessions:
    """`server_url`: of `slime serve`, or of a run's engine."""

    def __init__(self, server_url):
        self.server_url = server_url.rstrip("/")

    async def open(
        self,
        name=None,
        *,
        sampling_defaults=None,
        max_context_tokens=0,
        max_turns=None,
        keep_thoughts=True,
        chat_template_kwargs=None,
        tool_parser=None,
        reasoning_parser=None,
    ):
        """The session's name; one is made where none is given. HttpStatusError when the server refuses it."""
        defaults = {key: value for key, value in (sampling_defaults or {}).items() if key not in _NOT_DEFAULTS}
        asked = {
            "name": name,
            "sampling_defaults": {key: value for key, value in defaults.items() if value is not None},
            "max_context_tokens": int(max_context_tokens or 0),
            "max_turns": int(max_turns or 0),
            "keep_thoughts": keep_thoughts,
            "chat_template_kwargs": dict(chat_template_kwargs or {}),
            "tool_call_parser": tool_parser,
            "reasoning_parser": reasoning_parser,
        }
        asked = {key: value for key, value in asked.items() if value is not None}
        return (await post(f"{self.server_url}/sessions", asked, max_retries=1))["name"]

    def url(self, name):
        """The address under which a client's requests are the session's: Anthropic's clients take it as it is, OpenAI's with
        /v1 behind it."""
        return f"{self.server_url}/sessions/{quote(name, safe='')}"

    async def recorded(self, name):
        """What was sampled so far: a list of dictionaries."""
        return (await self._call("GET", self.url(name)))["turns"]

    async def finish(self, name, *, base_sample, reward=0.0, extra_metadata=None, max_sample_tokens=0, wait_timeout=5.0):
        """Ends the session, after what is under way or when the time is over; its samples, each with the
        whole reward and the text of its response."""
        ended = await self._call("DELETE", f"{self.url(name)}?wait_seconds={max(0, round(wait_timeout))}")
        answers, samples = samples_of_turns(
            ended["turns"],
            base_sample=base_sample,
            reward=reward,
            extra_metadata=extra_metadata,
            max_sample_tokens=max_sample_tokens,
        )
        if lost := ended["num_forgotten_tokens"]:  # answers that no client read
            answers.append({"output_ids": [-1] * lost, "meta_info": {"weight_version": -1}, "prompt_ids": []})
        turns.note(answers)  # for the generate function that waits here: which weights drew them
        for sample in samples:
            if sample.response_length:
                sample.response = await self._text_of(sample.tokens[-sample.response_length :])
        return samples

    async def drop(self, name, *, wait_timeout=5.0):
        """Ends a session without samples; one that is not there is no error."""
        try:
            await self._call("DELETE", f"{self.url(name)}?wait_seconds={max(0, round(wait_timeout))}")
        except HttpStatusError as error:
            if error.status != 404:
                raise

    async def _text_of(self, tokens):
        asked = {"tokens": tokens, "skip_special_tokens": False}
        return (await post(f"{self.server_url}/detokenize", asked, max_retries=1))["text"]

    async def _call(self, method, url):
        status, body = await request(method, url)
        text = body.decode(errors="replace")
        if status != 200:
            raise HttpStatusError(method, url, status, text)
        return await asyncio.to_thread(json.loads, text) if len(text) > 1 << 20 else json.loads(text)

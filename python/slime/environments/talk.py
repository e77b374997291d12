"""One conversation of an episode, in a session of the run's own server: the turns are kept there as they were sampled."""

import contextlib

from slime.agent.server_sessions import ServerSessions
from slime.utils.http_utils import HttpStatusError, post

__all__ = ["Talk", "open_session", "open_talk"]


class Talk:
    def __init__(self, url, messages, tools):
        self._url, self.messages, self._tools = url, list(messages), tools
        self.num_turns, self.is_cut_off = 0, False

    async def say(self):
        """The model's next message, which is in `messages` then; `is_cut_off` says whether it is whole. None: the context is full."""
        asked = {"messages": self.messages, **({"tools": self._tools} if self._tools else {})}
        try:
            answer = await post(f"{self._url}/v1/chat/completions", asked, max_retries=1)
        except HttpStatusError as error:
            if error.status == 400 and "context" in error.text:
                return None
            raise
        choice = answer["choices"][0]
        self.messages.append(choice["message"])
        self.num_turns += 1
        self.is_cut_off = choice["finish_reason"] == "length"
        return choice["message"]

    def hear(self, text, role="user", **fields):
        self.messages.append({"role": role, "content": text, **fields})


@contextlib.asynccontextmanager
async def open_session(engine):
    """(url, finish): `await finish(sample, score)` ends the session and returns its samples. A block that fails drops it."""
    sessions = ServerSessions(engine.url)
    name = await sessions.open(sampling_defaults=engine.sampling_params, max_context_tokens=engine.max_context_tokens)

    async def finish(sample, score):
        return await sessions.finish(name, base_sample=sample, reward=score.record(), extra_metadata=sample.metadata)

    try:
        yield sessions.url(name), finish
    except BaseException:
        with contextlib.suppress(Exception):
            await sessions.drop(name, wait_timeout=0)
        raise


@contextlib.asynccontextmanager
async def open_talk(engine, messages, tools=None):
    """(talk, finish): a conversation in a session of its own."""
    async with open_session(engine) as (url, finish):
        yield Talk(url, messages, tools), finish

"""What both protocols have in common: sessions, the one turn, its exact tokens.

A client's messages become those of the chat template, their tokens go to the engine, what it draws goes back in the
client's form and, with its tokens, into the session's trajectory. What the engine wrote is never encoded again: a prompt
that goes on from an earlier turn begins with that turn's own tokens, and only what is new behind it is tokenised.
"""

import asyncio
import dataclasses
import logging
import time
import uuid
from typing import Any

from slime import turns
from slime.agent.http_app import Application, HttpProblem, Response
from slime.agent.conversation import text_behind
from slime.agent.parsing import parse_model_output
from slime.agent.trajectory import TrajectoryManager, TurnRecord
from slime.utils.http_utils import post

__all__ = ["BaseAdapter", "Reply", "Session", "TurnRecord", "flatten_content", "tool_call_dict"]

_ABORT_SECONDS = 5


@dataclasses.dataclass
class Session:
    """`sampling_defaults` are those of the engine, under what a request says; `max_context_tokens` 0 is no limit; `answers`
    are the engine's, as far as they say which weights drew which tokens."""

    sampling_defaults: dict = dataclasses.field(default_factory=dict)
    max_context_tokens: int = 0
    answers: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Reply:
    """The answer as the trajectory knows it (and the client repeats it), and in the client's protocol."""

    manager_message: dict
    finish_reason: str
    wire: Any


def flatten_content(content):
    """A message's content as one string: texts by line, images as a remark."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return content if isinstance(content, str) else str(content)
    return "\n".join(text for text in map(_part_text, content) if text)


def _part_text(part):
    if not isinstance(part, dict):
        return part if isinstance(part, str) else str(part)
    kind = part.get("type")
    if kind in ("image", "image_url", "input_image"):
        return "[image omitted]"
    if kind not in ("text", "input_text", "output_text") and "content" in part:
        return flatten_content(part["content"])
    return str(part.get("text") or "")


def tool_call_dict(name, arguments):
    """A call as the chat template takes it: arguments by name, without an id. Ids are new in each answer, and a message
    that is repeated must equal the one before."""
    return {"type": "function", "function": {"name": name, "arguments": arguments or {}}}


def tool_dict(name, description, parameters):
    parameters = parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def manager_finish_reason(tool_uses, raw_finish):
    return "tool_calls" if tool_uses else (raw_finish or "stop")


def sid_from_bearer(request):
    """The session is the key that the client was given."""
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() or None if kind.lower() == "bearer" else None


def _render_token_ids(messages, tokenizer, *, tools, add_generation_prompt=True):
    encoded = tokenizer.apply_chat_template(
        messages, tools=tools, tokenize=True, add_generation_prompt=add_generation_prompt
    )
    if hasattr(encoded, "keys"):
        encoded = encoded["input_ids"]
    return list(encoded)


class BaseAdapter:
    """One endpoint for all sessions; a client's key names its session. Subclasses translate their protocol."""

    logger = logging.getLogger(__name__)
    log_prefix = "adapter"
    max_token_keys = ()
    stop_keys = ()

    def __init__(
        self,
        *,
        tokenizer,
        sglang_url,
        tool_parser=None,
        reasoning_parser=None,
        max_turns_per_sid=None,
        fork_threshold_tokens=None,
        debug_callback=None,
    ):
        self.tokenizer = tokenizer
        self.sglang_url = sglang_url.rstrip("/")
        self.tool_parser = tool_parser
        self.reasoning_parser = reasoning_parser
        self.max_turns_per_sid = max_turns_per_sid
        self.debug_callback = debug_callback
        self.manager = TrajectoryManager(fork_threshold_tokens=fork_threshold_tokens)
        self.store = {}
        self.inflight = {}
        self.closed = set()
        self.aborts = set()
        self._turns = {}
        self.app = Application()
        self.app.add("GET", "/healthz", _health)
        self.app.add("GET", "/v1/models", _health)
        self._register_routes(self.app)

    # What a protocol says of itself.

    def _register_routes(self, app):
        raise NotImplementedError

    def _session_id(self, request, body):
        raise NotImplementedError

    def _preprocess_body(self, body):
        """May change the body before it is looked at."""

    def _translate(self, body):
        """(messages of the chat template, tools or None)"""
        raise NotImplementedError

    def _build_reply(self, parsed, raw_finish, translated, tools_schema):
        """A Reply."""
        raise NotImplementedError

    def _render(self, body, reply, in_tok, out_tok, stream):
        """The Response."""
        raise NotImplementedError

    # Sessions.

    def open_session(self, sid, *, sampling_defaults=None, max_context_tokens=0):
        """Each session once."""
        if sid in self.store or sid in self.closed:
            raise ValueError(f"there is a session {sid!r} already")
        self.store[sid] = Session(dict(sampling_defaults or {}), int(max_context_tokens or 0))

    async def shutdown_session(self, sid, *, wait_timeout=5.0):
        """Refuses what comes from now on, waits for what is under way, cancels it in the end. From any event loop."""
        self.closed.add(sid)
        tasks = [task for task in self.inflight.pop(sid, ()) if not task.done()]
        if not tasks:
            return

        async def drain():
            _, late = await asyncio.wait(tasks, timeout=wait_timeout)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(drain(), tasks[0].get_loop()))

    async def finish_session(self, sid, *, base_sample, reward=0.0, extra_metadata=None, wait_timeout=5.0):
        """The session's samples, text of the response included. A second time there are none."""
        await self.shutdown_session(sid, wait_timeout=wait_timeout)
        session = self.store.pop(sid, None) or Session()
        self._turns.pop(sid, None)
        turns.note(session.answers)  # for the generate function that waits here: which weights drew them
        samples = self.manager.get_trajectory(
            sid,
            base_sample=base_sample,
            reward=reward,
            extra_metadata=extra_metadata,
            max_sample_tokens=session.max_context_tokens,
        )
        for sample in samples:
            if sample.response_length:
                tokens = sample.tokens[-sample.response_length :]
                sample.response = self.tokenizer.decode(tokens, skip_special_tokens=False)
        return samples

    async def drop_session(self, sid, *, wait_timeout=5.0):
        await self.shutdown_session(sid, wait_timeout=wait_timeout)
        self.store.pop(sid, None)
        self._turns.pop(sid, None)
        self.manager.drop_session(sid)

    # A turn.

    def prompt_token_ids(self, sid, messages, tools):
        """Tokens of the prompt. Behind what the engine wrote in this session they are its own tokens and those of the
        text that follows; where the template shows the past otherwise than it was, they are those of the whole text."""
        known = self.manager.longest_turn(sid, messages)
        if known is not None:
            turn, depth = known
            tail = text_behind(self.tokenizer, turn.output_ids, messages, depth, tools)
            if tail is not None:
                tail_ids = self.tokenizer(tail, add_special_tokens=False)["input_ids"] if tail else []
                return list(turn.prompt_ids) + list(turn.output_ids) + list(tail_ids)
        return _render_token_ids(messages, self.tokenizer, tools=tools)

    async def _run_turn(self, request):
        body = request.json()
        self._preprocess_body(body)
        sid = self._session_id(request, body)
        if sid in self.closed:
            raise HttpProblem(503, "the session is closed")
        refusal = self._count_turn(sid)
        if refusal is not None:
            return refusal
        session = self.store.setdefault(sid, Session())
        task = asyncio.current_task()
        self.inflight.setdefault(sid, set()).add(task)
        started = time.monotonic()
        try:
            messages, tools = self._translate(body)
            prompt_ids = self.prompt_token_ids(sid, messages, tools)
            turn = await call_sglang_generate(prompt_ids, session, body, adapter=self, session_id=sid)
            drawn = self.tokenizer.decode(turn.output_ids, skip_special_tokens=False) if turn.output_ids else ""
            parsed = parse_model_output(
                drawn,
                tools_schema=tools,
                tool_parser_name=self.tool_parser,
                reasoning_parser_name=self.reasoning_parser,
            )
            turn = dataclasses.replace(turn, ill_formed=parsed.ill_formed)
            reply = self._build_reply(parsed, turn.finish_reason, messages, tools)
            stream = body.get("stream") is True or "text/event-stream" in request.headers.get("accept", "")
            try:
                # Sent before it is recorded: a turn that the client never saw is none.
                await request.reply(self._render(body, reply, len(prompt_ids), len(turn.output_ids), stream))
            except ConnectionError:
                seconds = time.monotonic() - started
                self.logger.warning("session %s: the client left during a turn of %.1f s", sid, seconds)
                return None
            if self.debug_callback is not None:
                self.debug_callback(sid, messages, tools, reply.manager_message, turn)
            self.manager.record_turn(
                sid,
                turn=turn,
                prompt_messages=messages,
                response_message=reply.manager_message,
                metadata={"sid": sid},
            )
            return None
        finally:
            self.inflight.get(sid, set()).discard(task)

    def _count_turn(self, sid):
        limit = self.max_turns_per_sid
        if limit is not None and self._turns.get(sid, 0) >= limit:
            message = f"session {sid} has had its {limit} turns"
            return Response.of_json({"error": {"type": "rate_limit_error", "message": message}}, 429)
        self._turns[sid] = self._turns.get(sid, 0) + 1
        return None


def _sampling_params(session, body, *, max_token_keys, stop_keys):
    """The session's defaults, under what the request says; its limit of tokens can only be lower."""
    params = {
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "no_stop_trim": True,
        "max_new_tokens": 4096,
        **(session.sampling_defaults or {}),
    }
    limit = next((body[key] for key in max_token_keys if body.get(key) is not None), None)
    if limit is not None:
        params["max_new_tokens"] = min(int(params["max_new_tokens"]), int(limit))
    for key in ("temperature", "top_p", "top_k"):
        if body.get(key) is not None:
            params[key] = body[key]
    stop = next((body[key] for key in stop_keys if body.get(key)), None)
    if stop is not None:
        params["stop"] = stop
    return params


async def call_sglang_generate(prompt_ids, session, body, *, adapter, session_id=None):
    """One call of the engine as a TurnRecord. A context that is full is a turn of no tokens that ends by length."""
    params = _sampling_params(session, body, max_token_keys=adapter.max_token_keys, stop_keys=adapter.stop_keys)
    if session.max_context_tokens > 0:
        room = session.max_context_tokens - len(prompt_ids)
        if room <= 0:
            return TurnRecord(list(prompt_ids), [], "length")
        params["max_new_tokens"] = min(int(params["max_new_tokens"]), room)
    rid = uuid.uuid4().hex
    headers = {"X-SMG-Routing-Key": session_id} if session_id and session_id != "default" else None
    payload = {"rid": rid, "input_ids": list(prompt_ids), "sampling_params": params, "return_logprob": True}
    try:
        answer = await post(adapter.sglang_url + "/generate", payload, max_retries=1, headers=headers)
    except asyncio.CancelledError:
        # Its connection is closed; a router in between may not tell the engine.
        abort = asyncio.ensure_future(_abort(adapter, rid))
        adapter.aborts.add(abort)
        abort.add_done_callback(adapter.aborts.discard)
        raise
    meta = answer.get("meta_info") or {}
    drawn = meta.get("output_token_logprobs") or []
    finish = (meta.get("finish_reason") or {}).get("type") or "stop"
    ids = [entry[1] for entry in drawn]
    versions = {name: meta[name] for name in ("weight_version", "weight_version_runs") if name in meta}
    session.answers.append({"output_ids": ids, "meta_info": versions, "prompt_ids": list(prompt_ids)})
    return TurnRecord(list(prompt_ids), ids, finish, [float(entry[0]) for entry in drawn])


async def _abort(adapter, rid):
    try:
        await asyncio.wait_for(
            post(adapter.sglang_url + "/abort_request", {"rid": rid}, max_retries=1), _ABORT_SECONDS
        )
    except Exception as error:
        adapter.logger.debug("the abort of %s did not arrive: %s", rid, error)


async def _health(request):
    return Response.of_json({"ok": True, "object": "list", "data": [{"id": "slime-actor", "object": "model"}]})

"""What all protocols have in common: sessions, the one turn, its exact tokens.

A client's messages become those of the chat template, their tokens go to the engine, what it samples goes back in the
client's form and, with its tokens, into the session's trajectory. What the engine wrote is never encoded again: a prompt
that goes on from an earlier turn begins with that turn's own tokens, and only what is new behind it is tokenised.
"""

import asyncio
import dataclasses
import functools
import logging
import re
import time
import uuid
from typing import Any

from slime import turns
from slime.agent.adapters.engine_answer import end_and_text, nuclei_of, problem_of, stop_text
from slime.agent.adapters.fields import SAMPLING, check_fields, template_options
from slime.agent.adapters.protocol import Protocol, Reply, flatten_content, key_of, tool_call_dict
from slime.agent.continuation import end_marks, render, template_messages, text_behind, tokens_behind, unfinished
from slime.agent.http_app import Application, HttpProblem, Response
from slime.agent.parsing import check_parser, parse_text
from slime.agent.trajectory import TrajectoryManager, TurnRecord
from slime.rollout.sampling_params import log_prob_fields
from slime.utils.http_utils import HttpStatusError, post

__all__ = ["BaseAdapter", "Protocol", "Reply", "Session", "TurnRecord", "flatten_content", "tool_call_dict"]

_ABORT_SECONDS = 5
_PATH_OF_A_SESSION = re.compile(r"/sessions/([^/]+)(/.*)")
# Clients retry 429 and 5xx unless they are told not to.
_FINAL = {"x-should-retry": "false"}


@dataclasses.dataclass
class Session:
    """`sampling_defaults` are those of the engine, under what a request says; `max_context_tokens` 0 is no limit; `answers`
    are the engine's, as far as they say which weights drew which tokens."""

    sampling_defaults: dict = dataclasses.field(default_factory=dict)
    max_context_tokens: int = 0
    answers: list = dataclasses.field(default_factory=list)
    refused_behind: Any = None  # the turn behind which the last request was refused, because there was no room or turn left


def _render_token_ids(messages, tokenizer, *, tools, add_generation_prompt=True, **options):
    encoded = tokenizer.apply_chat_template(
        template_messages(tokenizer, messages),
        tools=tools,
        tokenize=True,
        add_generation_prompt=add_generation_prompt,
        **options,
    )
    if hasattr(encoded, "keys"):
        encoded = encoded["input_ids"]
    return list(encoded)


class BaseAdapter:
    """One endpoint for all sessions; a client's key names its session, and only those that were opened are answered.
    `protocols`: by path. `chat_template_kwargs`: options of the template for every turn.
    `free_tool_choice`: a tool_choice that the endpoint cannot keep is taken as auto, and named as ignored.
    `keep_thoughts` False: where the template drops the thoughts of earlier turns, so do prompts, and what was sampled with
    them is a sample of its own; it needs a reasoning_parser."""

    logger = logging.getLogger(__name__)
    protocols = {}

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
        chat_template_kwargs=None,
        free_tool_choice=False,
        keep_thoughts=True,
    ):
        self.tokenizer = tokenizer
        self.sglang_url = sglang_url.rstrip("/")
        check_parser(tool_parser)
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
        self.free_tool_choice = free_tool_choice
        self.keep_thoughts = keep_thoughts
        self.template_options = dict(chat_template_kwargs or {})
        self._end_marks = end_marks(tokenizer)  # read once: it may be slow
        self._told = set()
        self.app = Application(before=self._look_at)
        self.app.add("GET", "/healthz", _health)
        self.app.add("GET", "/v1/models", _health)
        for path, protocol in self.protocols.items():
            self.app.add("POST", path, functools.partial(self._answer, protocol, self._turn))

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
        if session.refused_behind is not None:
            session.refused_behind.is_cut_off = True
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

    def _look_at(self, request):
        """/sessions/NAME/v1/... is /v1/... of that session: for clients whose key cannot be set. Whether its path or its key
        name an open session."""
        match = _PATH_OF_A_SESSION.fullmatch(request.path)
        if match:
            request.session, request.path = match.groups()
        names = (request.session, key_of(request), request.headers.get("x-api-key", "").strip())
        return any(name in self.store for name in names)

    def _session_id(self, protocol, request, body):
        """The session that the request names; HttpProblem when none is open under that name."""
        names = [str(name) for name in (request.session, *protocol.session_names(request, body)) if name]
        for name in names:
            if name in self.store and name not in self.closed:
                return name
        if any(name in self.closed for name in names):
            raise HttpProblem(503, "the session is closed", code="session_closed")
        raise HttpProblem(
            401,
            "no session is open under this key: a client's API key is the name that open_session() was given",
            code="invalid_api_key",
        )

    def _prompt(self, sid, messages, tools, options, goes_on=False):
        """(tokens of the prompt, the turn that they go on from or None). Behind what the engine wrote in this session they
        are its own tokens and those of the text that follows; where that cannot be told, those of the whole text. `goes_on`:
        a last message of the assistant is the beginning of the answer."""
        if goes_on and _is_begun(messages[-1]):
            return self._begun_prompt(messages, tools, options), None
        found = self.manager.find(sid, messages, tools, options)
        if found is not None and not found[0].turn.is_given_up:
            node, unit = found
            if not self.keep_thoughts and self._drops_thoughts(node, messages[unit.end :], tools, options):
                return self._whole_prompt(messages, tools, options), None
            before = messages[: unit.end - len(unit.messages)]
            shown = [*before, unit.message(), *messages[unit.end :]]
            turn = node.turn
            tail = text_behind(
                self.tokenizer, turn.output, shown, len(before) + 1, tools, **_end_of(turn), **options
            )
            if tail is not None:
                return turn.tokens() + tokens_behind(self.tokenizer, turn.output, tail, turn.end), found
        return self._whole_prompt(messages, tools, options), None

    def _whole_prompt(self, messages, tools, options):
        try:
            return _render_token_ids(messages, self.tokenizer, tools=tools, **options)
        except Exception as error:  # a template refuses by exceptions of any kind
            raise HttpProblem(400, f"the chat template refuses these messages: {error}") from error

    def _drops_thoughts(self, node, rest, tools, options):
        """Whether the template leaves out a thought of the turns up to `node` when `rest` follows."""
        path = node.path()
        thoughts = [each.unit.thoughts for each in path if each.turn is not None and each.unit.thoughts]
        if not thoughts:
            return False
        messages = [message for each in path for message in each.unit.messages]
        try:
            whole = render(self.tokenizer, [*messages, *rest], tools, **options)
        except Exception:  # the whole prompt will say why
            return True
        return any(thought not in whole for thought in thoughts)

    def _begun_prompt(self, messages, tools, options):
        """Tokens of a prompt that ends with the beginning of the answer, as the client wrote it."""
        try:
            text = unfinished(self.tokenizer, messages, tools, **options)
        except Exception as error:  # a template refuses by exceptions of any kind
            raise HttpProblem(400, f"the chat template refuses these messages: {error}") from error
        if text is None:
            raise HttpProblem(400, "the chat template does not show the last message, which the answer should go on from")
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def prompt_token_ids(self, sid, messages, tools, options=None):
        """Tokens of the prompt that a turn with these messages has."""
        return self._prompt(sid, messages, tools, options or self.template_options)[0]

    def _read(self, protocol, body):
        """(messages, tools, options of the template, names of fields that are ignored)"""
        try:
            acted_on = {*protocol.max_token_keys, *protocol.stop_keys, *protocol.acted_on}
            ignored = check_fields(body, acted_on=acted_on, free_tool_choice=self.free_tool_choice)
            messages, tools = protocol.translate(body)
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # a field of another type than it has
            raise HttpProblem(400, f"the request cannot be read: {type(error).__name__}: {error}") from error
        if not messages:
            raise HttpProblem(400, "there is no message", param="messages")
        choice = body.get("tool_choice")
        if (choice.get("type") if isinstance(choice, dict) else choice) == "none":
            tools = None
        return messages, tools, template_options(body, self.template_options), ignored

    async def _answer(self, protocol, answer, request):
        """Awaits answer(protocol, request, body, sid); problems are answered in the protocol's form."""
        try:
            body = request.json()
            return await answer(protocol, request, body, self._session_id(protocol, request, body))
        except HttpProblem as problem:
            final = _FINAL if problem.status in (400, 401, 404, 429, 503) else {}
            return Response.of_json(protocol.error(problem), problem.status, final)

    async def _turn(self, protocol, request, body, sid):
        session = self.store[sid]
        task = asyncio.current_task()
        self.inflight.setdefault(sid, set()).add(task)
        started = time.monotonic()
        try:
            messages, tools, options, ignored = self._read(protocol, body)
            goes_on = protocol.goes_on(body)
            prompt_ids, behind = self._prompt(sid, messages, tools, options, goes_on=goes_on)
            params = _sampling_params(session, body, protocol)
            session.refused_behind = None
            try:
                self._count_turn(sid)
                turn, text = await self._generate(prompt_ids, session, params, sid)
            except HttpProblem as problem:
                if behind is not None and problem.code in ("context_length_exceeded", "turn_limit"):
                    session.refused_behind = behind[0].turn
                raise
            read = functools.partial(
                parse_text,
                tools_schema=tools,
                tool_parser_name=self.tool_parser,
                reasoning_parser_name=self.reasoning_parser,
                is_thinking=self._opens_a_thought(prompt_ids),
            )
            parsed = read(text.removesuffix(turn.stop_text))
            turn = dataclasses.replace(turn, ill_formed=parsed.ill_formed)
            reply = protocol.build_reply(parsed, turn.finish_reason, body)
            stream = body.get("stream") is True or "text/event-stream" in request.headers.get("accept", "")
            response = protocol.render(self, body, reply, turn, stream)
            response.headers.update(self._say_ignored(sid, ignored))
            # Recorded before it is sent, since the next request may come at once; a turn that the client never saw is none.
            recording = self.manager.record_turn(
                sid,
                turn=turn,
                prompt_messages=messages,
                response_message=reply.message,
                metadata={"sid": sid},
                tools=tools,
                options=options,
                call_ids=reply.call_ids,
                behind=behind,
                also_said=(read(text).text,) if turn.stop_text else (),
            )
            try:
                await request.reply(response)
            except (ConnectionError, asyncio.CancelledError) as error:
                recording.forget()
                seconds = time.monotonic() - started
                self.logger.warning("session %s: the client left during a turn of %.1f s", sid, seconds)
                if isinstance(error, asyncio.CancelledError):
                    raise
                return None
            if recording.node is not None:
                turn.answer["prompt_ids"] = recording.node.prompt()  # without a copy of it
            if self.debug_callback is not None:
                self.debug_callback(sid, messages, tools, reply.message, turn)
            return None
        finally:
            self.inflight.get(sid, set()).discard(task)

    async def _generate(self, prompt_ids, session, params, sid):
        """One call of the engine: (TurnRecord, its text without the token that ended it). A context that is full is a
        turn of no tokens that ends by length."""
        if session.max_context_tokens > 0:
            room = session.max_context_tokens - len(prompt_ids)
            if room <= 0:
                return TurnRecord(prompt_ids, [], "length"), ""
            params["max_new_tokens"] = min(int(params["max_new_tokens"]), room)
        rid = uuid.uuid4().hex
        headers = {"X-SMG-Routing-Key": sid}
        payload = {"rid": rid, "input_ids": prompt_ids, "sampling_params": params, **log_prob_fields(params)}
        try:
            answer = await post(self.sglang_url + "/generate", payload, max_retries=1, headers=headers)
        except asyncio.CancelledError:
            # Its connection is closed; a router in between may not tell the engine.
            abort = asyncio.ensure_future(_abort(self, rid))
            self.aborts.add(abort)
            abort.add_done_callback(self.aborts.discard)
            raise
        except HttpStatusError as error:
            raise problem_of(error) from error
        except (OSError, EOFError) as error:
            raise HttpProblem(502, f"the engine did not answer: {type(error).__name__}: {error}") from error
        meta = answer.get("meta_info") or {}
        sampled = meta.get("output_token_logprobs") or []
        finish = meta.get("finish_reason") or {}
        ids = [entry[1] for entry in sampled]
        end, text = end_and_text(ids, finish, self.decode, self._end_marks, self.tokenizer.eos_token)
        versions = {name: meta[name] for name in ("weight_version", "weight_version_runs") if name in meta}
        noted = {"output_ids": ids, "meta_info": versions, "prompt_ids": prompt_ids}
        session.answers.append(noted)
        log_probs = [float(entry[0]) for entry in sampled]
        kind = finish.get("type") or "stop"
        nuclei = nuclei_of(meta, len(ids))
        return TurnRecord(prompt_ids, ids, kind, log_probs, nuclei, end=end, stop_text=stop_text(text, finish), answer=noted), text

    def _opens_a_thought(self, prompt_ids):
        """Whether the prompt ends inside a thought, as some templates begin each turn."""
        return bool(self.reasoning_parser) and self.decode(prompt_ids[-8:]).rstrip().endswith("<think>")

    def decode(self, ids):
        return self.tokenizer.decode(list(ids), skip_special_tokens=False) if len(ids) else ""

    def _say_ignored(self, sid, ignored):
        """Headers that name the fields; a line in the log for each the first time."""
        ignored = [name[:64] for name in ignored[:32]]
        new = [name for name in ignored if name not in self._told]
        if new and len(self._told) < 256:
            self._told.update(new)
            self.logger.warning("session %s: fields of the request are ignored: %s", sid, ", ".join(new))
        return {"x-slime-ignored-fields": ", ".join(ignored)} if ignored else {}

    def _count_turn(self, sid):
        limit = self.max_turns_per_sid
        if limit is not None and self._turns.get(sid, 0) >= limit:
            raise HttpProblem(429, f"session {sid} has had its {limit} turns", code="turn_limit")
        self._turns[sid] = self._turns.get(sid, 0) + 1


def _is_begun(message):
    return message["role"] == "assistant" and bool(message["content"]) and not message.get("tool_calls")


def _end_of(turn):
    return {} if turn.end is None else {"end": turn.end}


def _sampling_params(session, body, protocol):
    """The session's defaults, under what the request says; its limit of tokens can only be lower."""
    params = {
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "no_stop_trim": True,
        "max_new_tokens": 4096,
        **(session.sampling_defaults or {}),
    }
    key = next((key for key in protocol.max_token_keys if body.get(key) is not None), None)
    if key is not None:
        limit = body[key]
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise HttpProblem(400, f"{key} is a whole number from 1", param=key)
        params["max_new_tokens"] = min(int(params["max_new_tokens"]), limit)
    for key, name in SAMPLING.items():
        if body.get(key) is not None:
            params[name] = body[key]
    stop = next((body[key] for key in protocol.stop_keys if body.get(key)), None)
    if stop is not None:
        params["stop"] = stop
    return params


async def _abort(adapter, rid):
    try:
        await asyncio.wait_for(
            post(adapter.sglang_url + "/abort_request", {"rid": rid}, max_retries=1), _ABORT_SECONDS
        )
    except Exception as error:
        adapter.logger.debug("the abort of %s did not arrive: %s", rid, error)


async def _health(request):
    return Response.of_json({"ok": True, "object": "list", "data": [{"id": "slime-actor", "object": "model"}]})

"""What the endpoints of agents answer to requests that they cannot or must not serve."""

import os
import socket
import subprocess
import sys

import pytest
from agent_world import World
from slime.agent import peer_user
from slime.agent.adapters import common
from slime.agent.aiohttp_threaded import run_app_in_thread
from slime.agent.http_app import Application
from slime.utils.http_utils import HttpStatusError

ASKED = {"messages": [{"role": "user", "content": "x"}]}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
ANSWER = ("an answer", "<|im_end|>")


def test_an_endpoint_listens_on_loopback_unless_told_otherwise():
    handle = run_app_in_thread(Application())
    try:
        sockets = handle.runner._server.sockets
        assert [each.getsockname()[0] for each in sockets] == ["127.0.0.1"]
    finally:
        handle.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("kernel_answers", [True, False])
def test_another_user_of_the_machine_is_cut_off(monkeypatch, host, kernel_answers):
    if not kernel_answers:
        monkeypatch.setattr(peer_user, "_ask_kernel", lambda *ends: (False, None))
    app = Application()
    handle = run_app_in_thread(app, host=host)
    ask = (
        "import encodings.idna, os, socket, sys\nos.setuid(int(sys.argv[1]))\n"
        f"s = socket.create_connection(({host!r}, {handle.port}), 5)\n"
        "s.sendall(b'GET /x HTTP/1.1\\r\\n\\r\\n')\nprint(s.recv(12))"
    )

    def answer(user):
        return subprocess.run([sys.executable, "-c", ask, str(user)], capture_output=True, text=True, timeout=20).stdout.strip()

    try:
        assert answer(0) == "b'HTTP/1.1 404'"
        assert answer(65534) in ("b''", "")
        app.serves_other_users = True
        assert answer(65534) == "b'HTTP/1.1 404'"
    finally:
        handle.stop()


@pytest.mark.parametrize("kind, error", [("openai", ("code", "invalid_api_key")), ("anthropic", ("type", "authentication_error"))])
def test_a_key_that_no_session_has_samples_nothing(monkeypatch, kind, error):
    world = World(monkeypatch, kind=kind)
    world.adapter.open_session("s")
    for key in ("EMPTY", "", "S", "s2"):
        status, answer = world.ask(ASKED, key=key)
        assert status == 401 and answer["error"][error[0]] == error[1]
    assert world.calls == [] and world.adapter.store.keys() == {"s"}


def test_a_session_may_be_named_by_the_path_the_metadata_or_the_user(monkeypatch):
    world = World(monkeypatch)
    world.adapter.open_session("s")
    assert world.ask(ASKED, ANSWER, key="x", path="/sessions/s/v1/chat/completions")[0] == 200
    assert world.ask({**ASKED, "metadata": {"session_id": "s"}}, ANSWER, key="x")[0] == 200
    assert world.ask({**ASKED, "user": "s"}, ANSWER, key="x")[0] == 200
    assert world.ask(ASKED, key="x", path="/sessions/t/v1/chat/completions")[0] == 401
    assert len(world.finish()) == 3


@pytest.mark.parametrize(
    "field, value",
    [
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}),
        ("structured_outputs", {"choice": ["yes", "no"]}),
        ("guided_json", {"type": "object"}),
        ("regex", "(yes|no)"),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "look"}}),
        ("n", 2),
        ("top_logprobs", 3),
        ("logit_bias", {"3": 1}),
    ],
)
def test_a_field_that_would_change_the_answer_is_refused_by_name(monkeypatch, field, value):
    world = World(monkeypatch)
    world.adapter.open_session("s")
    status, answer = world.ask({**ASKED, "tools": TOOLS, field: value})
    assert status == 400 and answer["error"]["param"] == field and field in answer["error"]["message"]


@pytest.mark.parametrize(
    "more",
    [
        {"n": 1, "response_format": {"type": "text"}, "tool_choice": "auto", "stream_options": {"include_usage": True}},
        {"tool_choice": "none", "tools": TOOLS, "logit_bias": {}, "store": False, "service_tier": "auto"},
    ],
)
def test_fields_that_ask_for_nothing_are_taken(monkeypatch, more):
    world = World(monkeypatch)
    world.adapter.open_session("s")
    status, answer = world.ask({**ASKED, **more}, ANSWER)
    assert status == 200 and answer["choices"][0]["message"]["content"] == "an answer"
    assert "look" not in world.tokenizer.decode(world.calls[0][0])


def test_ignored_fields_are_named_to_the_client_and_once_in_the_log(monkeypatch, caplog):
    world = World(monkeypatch)
    world.adapter.open_session("s")
    for _ in range(2):
        world.ask({**ASKED, "seed": 3, "parallel_tool_calls": True}, ANSWER)
        assert world.headers["x-slime-ignored-fields"] == "parallel_tool_calls, seed"
    assert len([record for record in caplog.records if "seed" in record.message]) == 1


def test_a_tool_choice_may_be_taken_as_auto_where_the_adapter_is_made_so(monkeypatch):
    world = World(monkeypatch, free_tool_choice=True)
    world.adapter.open_session("s")
    status, answer = world.ask({**ASKED, "tools": TOOLS, "tool_choice": "required"}, ANSWER)
    assert status == 200 and answer["choices"][0]["message"]["content"] == "an answer"
    assert world.headers["x-slime-ignored-fields"] == "tool_choice"


@pytest.mark.parametrize("kind, more", [("anthropic", {}), ("openai", {"continue_final_message": True})])
def test_an_answer_that_the_client_began_is_gone_on_with(monkeypatch, kind, more):
    world = World(monkeypatch, kind=kind)
    world.adapter.open_session("s")
    begun = {"messages": [*ASKED["messages"], {"role": "assistant", "content": "It is "}], **more}
    status, answer = world.ask(begun, ("sunny", "<|im_end|>"))
    assert status == 200 and "sunny" in str(answer) and "It is sunny" not in str(answer)
    assert world.tokenizer.decode(world.calls[0][0]).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\nIt is ")
    (sample,) = world.finish()
    assert sum(sample.loss_mask) == len("sunny") + 1


@pytest.mark.parametrize("stream", [False, True])
def test_half_a_character_that_a_model_escapes_is_delivered(monkeypatch, stream):
    world = World(monkeypatch)
    world.adapter.open_session("s")
    text = '<tool_call>{"name": "look", "arguments": {"x": "\\ud800"}}</tool_call>'
    status, answer = world.ask({**ASKED, "tools": TOOLS, "stream": stream}, (text, "<|im_end|>"))
    assert status == 200 and "ud800" in (answer if stream else str(answer).encode("unicode_escape").decode())


def test_log_probs_are_those_of_the_sampled_tokens(monkeypatch):
    world = World(monkeypatch)
    world.adapter.open_session("s")
    _, answer = world.ask({**ASKED, "logprobs": True}, ANSWER)
    content = answer["choices"][0]["logprobs"]["content"]
    assert [each["logprob"] for each in content] == world.calls[0][2]
    assert "".join(each["token"] for each in content) == "an answer<|im_end|>"


REFUSALS = [
    '{"error": {"message": "the prompt has 8001 tokens; the context holds 2048, one of them for the response"}}',
    '{"error": {"message": "the prompt has 8001 tokens; prompt and response can have 2048 together (context length)"}}',
    '{"error": {"message": "This model\'s maximum context length is 2048 tokens. However, the prompt has 8001 tokens."}}',
    '{"error": {"message": "The input (8001 tokens) is longer than the model\'s context length (2048 tokens)."}}',
]


@pytest.mark.parametrize("text", REFUSALS)
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_context_that_is_full_is_answered_in_the_words_that_clients_look_for(monkeypatch, kind, text):
    world = World(monkeypatch, kind=kind)

    async def refuse(url, payload, **options):
        raise HttpStatusError("POST", url, 400, text)

    monkeypatch.setattr(common, "post", refuse)
    world.adapter.open_session("s")
    status, answer = world.ask(ASKED)
    error = answer["error"]
    assert status == 400 and error["type"] == "invalid_request_error"
    assert "This model's maximum context length is 2048 tokens" in error["message"]
    assert world.headers["x-should-retry"] == "false"
    if kind == "openai":
        assert error["code"] == "context_length_exceeded"
    else:
        assert error["message"].startswith("prompt is too long")
    assert world.finish() == []


@pytest.mark.parametrize("head", [b"Content-Length: -5", b"Content-Length: x", b"Transfer-Encoding: chunked", b"nothing"])
def test_bytes_that_are_no_request_are_answered(head):
    handle = run_app_in_thread(Application())
    try:
        with socket.create_connection(("127.0.0.1", handle.port), timeout=5) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n" + head + b"\r\n\r\n-1\r\n")
            assert client.recv(100).split()[1] in (b"400", b"404")
    finally:
        handle.stop()


def test_an_engine_that_is_not_there_is_502(monkeypatch):
    world = World(monkeypatch)

    async def fail(url, payload, **options):
        raise ConnectionRefusedError("nobody listens")

    monkeypatch.setattr(common, "post", fail)
    world.adapter.open_session("s")
    status, answer = world.ask(ASKED)
    assert status == 502 and "nobody listens" in answer["error"]["message"] and "x-should-retry" not in world.headers


def test_a_parser_that_nobody_has_is_refused_when_the_adapter_is_made(monkeypatch):
    with pytest.raises(ValueError, match="known without it: qwen"):
        common.BaseAdapter(tokenizer=World(monkeypatch).tokenizer, sglang_url="x", tool_parser="of_nobody")


def test_a_sessions_own_limit_ends_its_last_turn_by_length(monkeypatch):
    world = World(monkeypatch)
    world.adapter.open_session("s", max_context_tokens=60)
    _, answer = world.ask(ASKED, ANSWER)
    messages = [*ASKED["messages"], answer["choices"][0]["message"], {"role": "user", "content": "much more" * 9}]
    status, answer = world.ask({"messages": messages})
    assert status == 200 and answer["choices"][0]["finish_reason"] == "length" and len(world.calls) == 1
    (sample,) = world.finish()
    assert sample.status.value == "truncated" and sum(sample.loss_mask) == len(world.calls[0][1])


@pytest.mark.parametrize("goes_on", [False, True])
def test_an_agent_that_is_refused_its_last_turn_was_cut_off(monkeypatch, goes_on):
    world = World(monkeypatch, max_turns_per_sid=3 if goes_on else 1)
    world.adapter.open_session("s")
    _, answer = world.ask(ASKED, ANSWER)
    messages = [*ASKED["messages"], answer["choices"][0]["message"], {"role": "user", "content": "on"}]
    if goes_on:  # refused for its length, it begins anew with less
        real = common.post

        async def refuse(url, payload, **options):
            raise HttpStatusError("POST", url, 400, REFUSALS[0])

        monkeypatch.setattr(common, "post", refuse)
        assert world.ask({"messages": messages})[0] == 400
        monkeypatch.setattr(common, "post", real)
        assert world.ask(ASKED, ANSWER)[0] == 200
    else:
        assert world.ask({"messages": messages})[0] == 429
    assert [sample.metadata["truncated"] for sample in world.finish()] == ([False, False] if goes_on else [True])


@pytest.mark.parametrize(
    "messages", ["x", [], [{"role": "wizard", "content": "x"}], ["x"], [{"role": "tool", "content": "no call"}]]
)
def test_messages_that_cannot_be_shown_are_the_clients_fault(monkeypatch, messages):
    world = World(monkeypatch, "channels")
    world.adapter.open_session("s")
    status, answer = world.ask({"messages": messages})
    assert status == 400 and answer["error"]["type"] == "invalid_request_error"


def test_an_answer_that_the_client_never_saw_is_not_trained(monkeypatch):
    world = World(monkeypatch)
    world.adapter.open_session("s")
    world.ask(ASKED, ANSWER)
    world.is_gone = True
    world.ask(ASKED, ("a lost answer", "<|im_end|>"))
    (sample,) = world.finish()
    assert world.tokenizer.decode(sample.tokens).endswith("an answer<|im_end|>")


@pytest.mark.parametrize("value", [None, 3, "x", [], {}, [3], [None], {"x": [1]}])
@pytest.mark.parametrize("field", ["messages", "tools", "tool_choice", "stop", "metadata", "max_tokens", "chat_template_kwargs"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_a_field_of_another_type_is_never_the_servers_fault(monkeypatch, path, field, value):
    world = World(monkeypatch)
    world.adapter.open_session("s")
    world.outputs.append(ANSWER)
    status, _ = world.ask({**ASKED, "input": "x", field: value}, path=path)
    assert status in (200, 400)


@pytest.mark.parametrize("value", [3, "x", {}, [3], [None], [{"type": "tool_use"}], [{"type": "tool_result"}]])
def test_anthropic_content_of_another_type_is_never_the_servers_fault(monkeypatch, value):
    world = World(monkeypatch, kind="anthropic")
    world.adapter.open_session("s")
    for role in ("user", "assistant", "system"):
        world.outputs.append(ANSWER)
        status, _ = world.ask({"messages": [{"role": role, "content": value}], "system": value, "tools": value})
        assert status in (200, 400)


def test_a_stranger_cannot_make_the_endpoint_read_much(monkeypatch):
    world = World(monkeypatch)
    world.adapter.open_session("s")
    handle = run_app_in_thread(world.adapter.app)

    def head(key, path="/v1/chat/completions"):
        with socket.create_connection(("127.0.0.1", handle.port), timeout=5) as client:
            lines = [f"POST {path} HTTP/1.1", f"Authorization: Bearer {key}", "Content-Length: 9000000", "Expect: 100-continue"]
            client.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            return client.recv(100).split()[1]

    try:
        assert head("s") == b"100" and head("x", "/sessions/s/v1/chat/completions") == b"100"
        assert head("x") == b"413"
    finally:
        handle.stop()


def test_json_that_is_deep_is_refused(monkeypatch):
    world = World(monkeypatch)
    world.adapter.open_session("s")
    handle = run_app_in_thread(world.adapter.app)
    body = b'{"messages": ' + b"[" * 500_000 + b"]" * 500_000 + b"}"
    head = b"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer s\r\nContent-Length: %d\r\n\r\n" % len(body)
    try:
        with socket.create_connection(("127.0.0.1", handle.port), timeout=9) as client:
            client.sendall(head + body)
            assert client.recv(100).split()[1] == b"400"
    finally:
        handle.stop()


def test_content_that_is_no_text_leaves_a_remark_in_the_prompt(monkeypatch):
    world = World(monkeypatch, "plain")
    world.adapter.open_session("s")
    parts = [
        {"type": "text", "text": "hear"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "its words"}},
    ]
    status, answer = world.ask({"messages": [{"role": "user", "content": parts}]}, ANSWER)
    assert status == 200, answer
    assert "hear\n[audio omitted]\n[file omitted]\nits words<|im_end|>" in world.tokenizer.decode(world.calls[-1][0])


def test_a_limit_of_tokens_that_is_none_is_refused_under_the_name_that_was_sent(monkeypatch):
    world = World(monkeypatch, "plain")
    world.adapter.open_session("s")
    for name, value in (("max_tokens", 0), ("max_completion_tokens", "5")):
        status, answer = world.ask({**ASKED, name: value})
        assert status == 400 and answer["error"]["param"] == name, answer

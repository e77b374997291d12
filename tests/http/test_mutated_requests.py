"""Requests that are almost right: whatever a client sends, the answer is its own, a 4xx, or 501 for what is not done here. The server
never ends and never answers 5xx for it."""

import copy
import http.client
import json
import random
from pathlib import Path
from urllib.parse import urlsplit

from server_process import Server
from test_serve import make_model

FULL = 50_000
SHORT = 2_000

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}}
USER = {"role": "user", "content": "hello"}
SHORT_SAMPLING = {"max_new_tokens": 2, "temperature": 0.7}
BODIES = {
    "/generate": [{"text": "hello", "sampling_params": SHORT_SAMPLING, "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2,
                   "token_ids_logprob": [5, 6], "rid": "r", "stream": False},
                  {"input_ids": [5, 6, 7], "num_sampled": 1, "sampling_params": {"max_new_tokens": 2, "allowed_token_ids": [5, 6], "bad_words": ["a"],
                                                                                 "repetition_penalty": 1.1, "stop": ["x"]}},
                  {"input_ids": [[5, 6], [7]], "sampling_params": [{"max_new_tokens": 1, "n": 2}, {"max_new_tokens": 1, "n": 2}], "rid": ["a", "b"]}],
    "/v1/completions": [{"model": "m", "prompt": "hello", "max_tokens": 2, "logprobs": 1, "echo": True, "stop": ["x"], "n": 2}],
    "/v1/chat/completions": [{"model": "m", "messages": [{"role": "system", "content": "s"}, USER], "max_tokens": 2, "tools": [TOOL],
                              "tool_choice": "auto", "logprobs": True, "top_logprobs": 2, "stream": True, "stream_options": {"include_usage": True}},
                             {"messages": [USER], "max_tokens": 2, "response_format": {"type": "json_schema", "json_schema": {
                                 "name": "s", "schema": {"type": "object", "properties": {"a": {"enum": ["b", 1]}}, "required": ["a"]}}}},
                             {"messages": [USER], "max_tokens": 2, "allowed_token_ids": [5], "bad_words": ["b"], "logit_bias": {"5": 1}},
                             {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [
                                 {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]},
                                 {"role": "tool", "tool_call_id": "c", "content": "y"}], "max_tokens": 1}],
    "/v1/responses": [{"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}], "max_output_tokens": 2,
                       "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}], "instructions": "s"}],
    "/v1/messages": [{"model": "m", "max_tokens": 2, "system": "s", "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
                      "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto"}, "stream": True}],
    "/v1/messages/count_tokens": [{"model": "m", "messages": [USER]}],
    "/inference/v1/generate": [{"token_ids": [5, 6], "sampling_params": {"max_tokens": 2, "logprobs": 1, "prompt_logprobs": 1, "seed": 3}}],
    "/tokenize": [{"prompt": "hello", "add_special_tokens": True}],
    "/v1/tokenize": [{"messages": [USER], "tools": [TOOL], "chat_template_kwargs": {"a": 1}, "return_token_strs": True}],
    "/sessions": [{"name": "s", "sampling_defaults": {"temperature": 0.5}, "max_turns": 2, "max_context_tokens": 64, "keep_thoughts": True}],
    "/detokenize": [{"tokens": [5, 6], "skip_special_tokens": True}],
    "/parse_function_call": [{"text": "<tool_call>{}</tool_call>", "tools": [TOOL], "tool_call_parser": "qwen25"}],
    "/separate_reasoning": [{"text": "<think>a</think>b", "reasoning_parser": "qwen3"}],
    "/abort_request": [{"rid": "nobody", "abort_all": False}],
    "/flush_cache": [{}],
    "/update_weight_version": [{"new_version": "v", "abort_all_requests": False}],
    "/weights_checker": [{"action": "checksum"}],
    "/get_weights_by_name": [{"name": "model.norm.weight", "truncate_size": 3}],
    "/update_weights_from_tensor": [{"serialized_named_tensors": ["AAAA"], "load_format": None, "weight_version": "v"}],
    "/update_weights_from_distributed": [{"names": ["a"], "dtypes": ["float32"], "shapes": [[2]], "group_name": "g"}],
    # A server on the CPU joins no group of NCCL, so nobody is waited for.
    "/init_weights_update_group": [{"master_address": "127.0.0.1", "master_port": 9, "rank_offset": 1, "world_size": 2, "backend": "nccl"}],
    "/update_weights_from_disk": [{"model_path": "nowhere", "weight_version": "v", "load_format": "auto", "abort_all_requests": False}],
    "/pull_weights": [{"source_dir": "nowhere", "local_checkpoint_dir": "nowhere", "target_version": 1}],
    "/destroy_weights_update_group": [{"group_name": "g"}],
    "/post_process_weights": [{"post_process_quantization": True}],
    "/release_memory_occupation": [{"tags": ["weights"]}],
    "/start_profile": [{"output_dir": "x", "activities": ["CPU"]}],
    "/stop_profile": [{}],
}
VALUES = [None, True, False, 0, 1, -1, 2, 3.5, -0.5, 1e308, 2**31, 2**63, -(2**63), 10**30, "", "a", "true", "\u0000", "\ud800", "é" * 50, "x" * 5000, [],
          [None], [[]], [1], ["a"], [{}], [1] * 300, {}, {"a": 1}, {"type": "text"}, {"type": "object"}, [USER], "required", "{\"x\":"]


def places_in(value, place=()):
    """The path of every part of a body."""
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places_in(part, (*place, key))


def mutated(chance: random.Random, body):
    body = copy.deepcopy(body)
    for _ in range(chance.randint(1, 3)):
        place = chance.choice(list(places_in(body)))
        if not place:
            continue
        holder = body
        for key in place[:-1]:
            holder = holder[key]
        what = chance.random()
        if what < 0.6:
            holder[place[-1]] = copy.deepcopy(chance.choice(VALUES))
        elif what < 0.75:
            del holder[place[-1]]
        elif isinstance(holder, list):
            holder.insert(place[-1], copy.deepcopy(holder[place[-1]]))
        else:
            holder[chance.choice(["x", "stream", "n", "tools", place[-1] + "s"])] = copy.deepcopy(chance.choice(VALUES))
    return body


def as_bytes(chance: random.Random, body) -> bytes:
    data = json.dumps(body, allow_nan=True).encode()
    if chance.random() < 0.1:
        spoilt = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
        data = bytes(spoilt)
    return data


def test_no_request_ends_the_server_or_is_answered_with_5xx(tmp_path, nightly):
    model = make_model(Path(tmp_path))
    chance = random.Random(20261129)
    routes = [(path, body) for path, bodies in BODIES.items() for body in bodies]
    with Server(str(model), "--context-length", "256") as server:
        host = urlsplit(server.url).netloc
        connection = http.client.HTTPConnection(host, timeout=120)
        seen, wrong = {}, []
        for number in range(FULL if nightly else SHORT):
            path, body = routes[number % len(routes)]
            data = as_bytes(chance, mutated(chance, body))
            try:
                connection.request("POST", path, data, {"Content-Type": "application/json"})
                reply = connection.getresponse()
                text = reply.read()
            except OSError as error:
                wrong.append((path, data[:300], repr(error)))
                break
            kind = seen.setdefault(path, {})
            kind[reply.status] = kind.get(reply.status, 0) + 1
            if path == "/release_memory_occupation":
                server.post("/resume_memory_occupation", {})
            if reply.status >= 500 and reply.status != 501:
                wrong.append((path, data[:300], reply.status, text[:200]))
        connection.close()
        assert not wrong, wrong[:5]
        assert server.get("/health_generate")[0] == 200
        assert server.process.poll() is None
        for path, statuses in seen.items():
            assert statuses.get(400) or statuses.get(501) or path in ("/flush_cache", "/stop_profile"), (path, statuses)
        assert seen["/generate"].get(200), seen["/generate"]

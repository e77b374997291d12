#!/usr/bin/env python3
"""Writes seeds for the fuzz targets from the repository's own test data: OUT/TARGET/*.

    python3 tests/fuzz/make_corpus.py build/fuzz/corpus

A fuzzer that starts from valid files gets behind the first check; from nothing it would spend its minute finding "{".
"""

import base64
import json
import lzma
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "fixtures" / "models"
TOKENIZERS = ROOT / "tests" / "fixtures" / "tokenizers"
LARGEST_SEED_BYTES = 60_000  # -max_len of ./dev fuzz

REQUESTS = [
    {"text": "ab", "sampling_params": {"temperature": 0.5, "max_new_tokens": 3, "stop": ["b"]}, "stream": True},
    {"input_ids": [[0, 1], [2]], "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2},
    {"model": "tiny", "messages": [{"role": "user", "content": "ab"}], "max_tokens": 4, "n": 2, "logprobs": True},
    {"model": "tiny", "prompt": "ab", "logit_bias": {"1": -1.5}, "echo": True, "stream_options": {"include_usage": True}},
    {"token_ids": [0, 1], "request_id": "r", "return_token_ids": True, "output_mode": "text", "stream": True,
     "sampling_params": {"max_tokens": 3, "n": 2, "seed": -1, "logprobs": 2, "prompt_logprobs": 1, "top_k": 0, "stop": ["a"]}},
]
CHATS = [  # of chat_messages_fuzz.cpp
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}, {"role": "tool", "tool_call_id": "c1", "content": "b"}],
     "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}], "tool_choice": "required"},
    {"messages": [{"role": "developer", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "c"}],
     "tools": [{"type": "custom", "name": "g"}], "tool_choice": {"type": "function", "function": {"name": "f"}}},
]
PROTOCOL_REQUESTS = [
    "r" + json.dumps({"instructions": "b", "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]}, {"type": "reasoning", "summary": [], "encrypted_content": "slime.reasoning.1.SG0u"},
        {"type": "function_call", "call_id": "c", "name": "f", "namespace": "n", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "d", "name": "p", "input": "x"}, {"type": "function_call_output", "call_id": "c", "output": "y"},
        {"type": "local_shell_call", "call_id": "e", "action": {"type": "exec", "command": ["ls"]}}],
        "tools": [{"type": "function", "name": "f", "parameters": {}}, {"type": "custom", "name": "p"}, {"type": "web_search"},
                  {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        "reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"], "text": {"format": {"type": "text"}}}),
    "m" + json.dumps({"max_tokens": 4, "system": [{"type": "text", "text": "b"}], "stop_sequences": ["a"], "thinking": {"type": "enabled"}, "messages": [
        {"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "a", "signature": "s"},
         {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "4"}], "is_error": True},
         {"type": "document", "source": {"type": "text", "data": "d"}}]}],
        "tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "f"}}),
    "c" + json.dumps({"messages": [{"role": "user", "content": "a"}]}),
    "eslime.reasoning.1.SG0u",
    '1{"a": [1.5e-3, {"b": "x\\u00e9"}, true, null]} x',
]
SESSIONS = [  # of sessions_fuzz.cpp
    "s" + json.dumps({"name": "a-17", "sampling_defaults": {"temperature": 1.0, "max_new_tokens": 512}, "max_context_tokens": 2048, "max_turns": 50,
                      "keep_thoughts": False, "chat_template_kwargs": {"enable_thinking": False}}),
    "m" + json.dumps({"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "<think>x</think> c", "tool_calls": [{"id": "d", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1.0}"}}]},
        {"role": "tool", "tool_call_id": "d", "content": "e"}], "reply": {"role": "assistant", "content": "g  h", "reasoning_content": "i"}}),
    "m" + json.dumps({"messages": [{"role": "user", "content": "a"}], "reply": {"role": "assistant", "content": None, "tool_calls": [
        {"id": "d", "type": "custom", "custom": {"name": "f", "input": "x"}}, {"id": "e", "type": "function", "function": {"name": "g", "arguments": "{}"}}]}}),
]
KEPT = [  # of kept_engine_fuzz.cpp: a byte that chooses, then a file or an answer
    b'\0{"id": "s", "program": "/p", "settings": {"a": 1}, "unsaved": "/u", "processes": [12, 0]}',
    b'\1{"ready": "{\\"max_request_tokens\\": 9, \\"device\\": \\"cpu\\", \\"memory\\": {}}", "version": 3, "checksum": "00000000000000ff", "process": 12}',
    b'\2{"step": 3, "generated_tokens": 2, "groups": [{"group": 1, "samples": []}], "untrained": {"a": 1}, "masks_are_lost": false, "metrics": {"m": 0.5}}',
]
ROUTE_BODIES = [  # of server_routes_fuzz.cpp
    '{"prompt": ["ab", "<s>"], "add_special_tokens": false, "return_token_strs": true, "model": "m"}',
    '{"messages": [{"role": "user", "content": "a"}], "tools": [], "chat_template_kwargs": {}, "add_generation_prompt": true, "continue_final_message": false}',
    '{"tokens": [[0, 1], [3]], "skip_special_tokens": false}',
    '{"serialized_named_tensors": ["AAAA", "AAAA"], "weight_version": "v", "abort_all_requests": true, "load_format": "direct", "flush_cache": true}',
    '{"names": ["a"], "dtypes": ["torch.bfloat16"], "shapes": [[2, 3]], "group_name": "g", "load_format": "flattened_bucket"}',
    '{"master_address": "h", "master_port": 1, "rank_offset": 1, "world_size": 3, "group_name": "g", "backend": "gloo"}',
    '{"model_path": ".", "load_format": "auto", "keep_pause": true, "token_step": 0, "new_version": "w", "name": "a", "truncate_size": 2}',
    '{"source_dir": ".", "local_checkpoint_dir": ".", "target_version": 3}',
    '{"action": "checksum", "allow_quant_error": false, "skip_tensor_list": []}',
    '{"restore_weights_before_load": true, "post_process_quantization": false}',
    '{"output_dir": "x", "num_steps": 2, "activities": ["CPU", "GPU"], "with_stack": true, "profile_prefix": "p"}',
    '{"rid": "r", "abort_all": true, "mode": "retract", "tags": ["weights", "kv_cache"]}',
]
GATEWAY = [  # of gateway_fuzz.cpp: requests, metrics, addresses of workers, events of other servers
    '{"rid": ["a", "b"], "text": "x", "stream": true, "metadata": {"session_id": "s"}, "user": "u"}',
    '{"model": "m", "prompt": ["a", "b"], "input_ids": [[1, 2], [3]], "messages": [{"role": "user", "content": "\\u00e9"}]}',
    "# HELP a b\n# TYPE a counter\na_total{x=\"y\",z=\"\\\"\"} 1\na_bucket{le=\"+Inf\"} 3 1700000000\nb 1e-3\n",
    "http://[::1]:30000/",
    'data: {"text": "ab", "output_ids": [1, 2], "meta_info": {"id": "r", "finish_reason": {"type": "stop", "matched": 2}, "prompt_tokens": 3, "completion_tokens": 2,'
    ' "cached_tokens": 0, "weight_version": "1", "output_token_logprobs": [[-0.5, 1, null], [-1.5, 2, null]], "output_top_logprobs": [[[-0.5, 1, null]], [[-1.5, 2, null]]],'
    ' "input_token_logprobs": [[null, 1, null]]}}\n\n: ping\n\ndata: [DONE]\n\n',
    '{"text": "a", "output_ids": [1], "meta_info": {"finish_reason": {"type": "length", "length": 1}, "output_token_logprobs": [[-0.5, 1, null]],'
    ' "spec_verify_ct": 1, "spec_draft_token_num": 3, "spec_accept_token_num": 1, "spec_num_proposed_drafts": 3, "spec_num_correct_drafts": 1}}',
    '{"error": {"message": "no", "type": "server_error", "code": 503}}',
    '{"url": "http://h:1", "worker_type": "regular", "api_key": ""}',
    '{"name": null, "max_turns": 3}',
    '{"object": "list", "data": [{"id": "m"}, {"id": "m"}], "sessions": [{"name": "a"}, {"name": "a", "id": 2}, 3, 3], "loads": [{"load": 1}]}',
]
HEADS = [
    "GET /v1/models HTTP/1.1\r\nHost: localhost:1\r\nAuthorization: Bearer fuzzed-key\r\nX-API-Key: fuzzed-key\r\nOrigin: http://127.0.0.1:5\r\n\r\n",
    "OPTIONS /generate HTTP/1.1\r\nHost: [::1]\r\nOrigin: http://localhost\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: a\r\n\r\n",
    "GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /generate HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
    "POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "4;x=y\r\nabcd\r\n0\r\nTrailer: 1\r\n\r\n",
]
RESPONSES = [
    "so \\boxed{\\frac{1}{2}}\0 0.5",
    "Answer: 1,234.50\0 1234.5",
    "\\boxed{x^2+2x+1}\0 (x+1)^2",
    "\\boxed{\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}}\0 [[1,2],[3,4]]",
    "the cat sat\0 the cat",
]
CALL_FORMATS = [  # of message_parser_fuzz.cpp, in the order of text/messages/call_format.cpp; each has five kinds of thoughts
    "qwen25", "hermes", "qwen3_coder", "mimo", "glm45", "glm47", "minimax-m2", "deepseekv32", "deepseekv3", "deepseekv31", "kimi_k2",
    "mistral", "llama3", "pythonic", "phi4", "gemma4", "hunyuan", "step3", "interns1", "lfm2", "dots", "gpt-oss",
]
NUM_REWARD_CHOICES = 15  # of reward_fuzz.cpp: thirteen rewards, two equalities
SETTINGS = [  # of config_yaml_fuzz.cpp
    "lr: 1e-6\nuse_tis: true\neval_prompt_data: [a, a.jsonl]\nrollout_stop_token_ids: [1, 2]\n",
    "rs_veto_threshold: 1.0e-4\ntis_level: token\nmy_own_key: {a: [1, ~]}\n",
    "megatron:\n  - {role: actor, overrides: {lr: 1e-6}}\n  - {role: critic, args: {lr: 1e-5, load: /c}}\n",
    "eval:\n  defaults: {top_p: 0.7}\n  datasets:\n    - {name: a, path: a.jsonl, rm_type: math, n_samples_per_eval_prompt: 2}\n",
    "a0: &a0 word\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)),  # 9^9 words
]
RUN_FILES = [  # of run_files_fuzz.cpp
    '{"group_index": 0, "index": 3, "tokens": [1, 2, 3], "response_length": 2, "reward": 0.5, "loss_mask": [1, 0], "status": "completed",'
    ' "rollout_log_probs": [-0.5, -1.5], "weight_versions": [[0, 1], [1, 1]], "metadata": {"rm_type": "math"}, "remove_sample": false,'
    ' "spec_info": {"spec_accept_token_num": 1, "spec_draft_token_num": 3, "spec_verify_ct": 1, "completion_token_num": 2}}\n',
    '{"input": [{"role": "user", "content": "1+1"}], "label": 2, "metadata": {"rm_type": "math"}}',
]
LEDGERS = [  # of ledger_fuzz.cpp, which adds the checksums
    '{"ordinal":17,"fate":"dispatched"}\n{"ordinal":17,"fate":"trained","step":3,"tokens":812,"discarded":96}\n{"rollback_to":0}\n',
    '{"ordinal":0,"fate":"dispatched"}\n{"ordinal":0,"fate":"filtered","reason":"zero_std_1","tokens":5}\n'
    '{"checkpoint":0,"next_ordinal":1,"open_prompts":0,"generated":5,"pending":0,"discarded":0}\n',
]
ROLLOUT_LOGS = [  # of rollout_log_fuzz.cpp, which adds the checksums
    'b {"task_type":"math","group_size":2}\nw 0 {"uid":"a","instance_id":7,"reward":1}\nw 0 {"uid":"b","instance_id":7}\n'
    't {"groups":[0],"request_id":"r"}\nw 1 {"instance_id":"x"}\n',
    'r {"next_number":3,"num_given":2,"uids":[1,18446744073709551615]}\nw 3 {"instance_id":7}\nw 3 {"instance_id":7}\n',
]
JUDGE_ANSWERS = [  # of judge_answer_fuzz.cpp
    "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"score\": 0.5}",
    "HTTP/1.0 200 OK\r\n\r\n1",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n1e9\r\n1;x=y\r\n9\r\n0\r\nA: b\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nbusy",
]
TEACHER_ANSWER = json.dumps({"meta_info": {"input_token_logprobs": [[None, 1, None], [-0.5, 2, None], [-1.5, 3, None]]}})
COMMITTED = {"version": 1, "files": [{"file": "run.json", "size": 2, "crc32c": 0x297BD0AA}]}  # of "{}"
TRAINER_STATE = {"num_updates": 8, "num_steps": 8, "samples_done": 64, "rollouts_done": 2, "critic_updates": 0, "critic_samples_done": 0}
CHECKPOINT_RUN = {"version": 1, "iteration": 1, "trainer": TRAINER_STATE, "run": {"run_id": "ab", "ledger": 61}}
GENERATION_CONFIGS = [
    {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0, "repetition_penalty": 1.1, "eos_token_id": [2, 3]},
    {"eos_token_id": 2, "do_sample": True, "bos_token_id": None},
]
INDEXES = [
    {"metadata": {"total_size": 8}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}},
    {"weight_map": {"a": "1.safetensors"}},
]


def published_chats():
    """What agents' frameworks send as their second request."""
    with open(ROOT / "tests" / "fixtures" / "agent_requests" / "clients.jsonl") as lines:
        for client in map(json.loads, lines):
            if client["protocol"] == "openai":
                yield json.dumps(client["second"], ensure_ascii=False).encode()


def seeds(target):
    if target == "chat_template_fuzz":
        yield from (file.read_bytes() for file in TOKENIZERS.rglob("*.jinja"))
        for file in TOKENIZERS.rglob("tokenizer_config.json"):
            template = json.loads(file.read_text()).get("chat_template")
            if isinstance(template, str):
                yield template.encode()
        for case in json.loads((ROOT / "tests" / "golden" / "jinja_cases.json").read_text()).get("cases", []):
            yield str(case.get("template", "")).encode()
    elif target == "tokenizer_fuzz":
        yield b"plain text 123 \xe4\xbd\xa0"
        yield from (b"Hello  world 42\n" + file.read_bytes() for file in TOKENIZERS.rglob("tokenizer.json"))
        for file in TOKENIZERS.rglob("tokenizer.json"):
            yield b"Hello  world 42\n" + without_most_of_the_vocabulary(file)
    elif target == "tiktoken_file_fuzz":
        for file in TOKENIZERS.rglob("tiktoken.model"):
            ranks, config = file.read_bytes(), (file.parent / "tokenizer_config.json").read_bytes().strip()
            yield b"Hello  world 42\n" + config + b"\n" + ranks
            yield b"a [BOS]\n" + b'{"tokenizer_class": "QWenTokenizer"}\n' + ranks[:3000]
            yield b"xy\n" + b'{"pat_str": "[^a&&\\\\w]+|(?i:x)|."}\n' + ranks[:2600]
    elif target == "model_config_fuzz":
        yield from (file.read_bytes() for file in MODELS.rglob("config.json"))
    elif target == "safetensors_fuzz":
        yield safetensors({"a": ("F32", [2, 2], bytes(16)), "b": ("BF16", [3], bytes(6)), "c": ("I64", [], bytes(8))})
        yield safetensors({})
    elif target == "http_generate_request_fuzz":
        yield from (json.dumps(request).encode() for request in REQUESTS)
    elif target == "chat_messages_fuzz":
        for traits in (0, 0xff):
            yield from (bytes([traits]) + json.dumps(body).encode() for body in CHATS)
            yield from (bytes([traits]) + body for body in published_chats())
    elif target == "chat_protocols_fuzz":
        yield from (request.encode() for request in PROTOCOL_REQUESTS)
    elif target == "gateway_fuzz":
        yield from (text.encode() for text in GATEWAY)
        yield from published_chats()
    elif target == "kept_engine_fuzz":
        yield from KEPT
    elif target == "server_routes_fuzz":
        yield from (bytes([route]) + body.encode() for route in range(32) for body in ROUTE_BODIES)
        yield bytes([131]) + safetensors({"a": ("F32", [2, 2], bytes(16)), "b": ("BF16", [3], bytes(6))})
    elif target == "sessions_fuzz":
        yield from (body.encode() for body in SESSIONS)
        for chat in map(json.loads, published_chats()):
            for at, message in enumerate(chat["messages"]):
                if message["role"] == "assistant" and at > 0:
                    yield b"m" + json.dumps({"messages": chat["messages"][:at], "reply": message}).encode()
    elif target == "http_request_head_fuzz":
        yield from (head.encode() for head in HEADS)
    elif target == "frame_channel_fuzz":
        frames = [b"SLMF" + bytes([kind, 0, 0, 0]) + len(body).to_bytes(8, "little") + body for kind, body in ((4, b"2 busy"), (2, b""))]
        yield from (*frames, b"".join(frames))
    elif target == "plugin_payload_fuzz":
        for head in ({}, {"status": "failed", "metadata": {"a": 1}, "loss_mask": {"$column": 0}}, {"loss_mask": [1, 0]}):
            body = json.dumps(head).encode()
            table = struct.pack("<IIIIQ", len(body), 1, 5, 0, 2)
            yield table + body + b"\0" * (-len(body) % 8) + b"\1\0" + b"\0" * 6
    elif target == "config_yaml_fuzz":
        yield from (bytes([choice]) + settings.encode() for choice, settings in enumerate(SETTINGS))
    elif target == "run_files_fuzz":
        yield from (bytes([choice]) + lines.encode() for choice, lines in enumerate(RUN_FILES))
    elif target == "ledger_fuzz":
        yield from (b"\1" + lines.encode() for lines in LEDGERS)
    elif target == "rollout_log_fuzz":
        yield from (b"\1" + lines.encode() for lines in ROLLOUT_LOGS)
        yield b'\0{"uid": "a", "instance_id": 7, "messages": [], "reward": 1.0, "extra_info": {}}'
    elif target == "worker_frames_fuzz":
        yield b"\0t" + share()
        yield from (b"\0" + task for task in (b"p", b"g", b"r", b"m9 10.0.0.2"))
        yield b"\0c" + json.dumps({"root": "/c", "model_source": "/m", "save_optimizer": True, "iteration": 2, "run": {}}).encode()
        config = {"flags": {"--lr": "0.5"}, "num_engine_workers": 1, "critic": None}
        start = {"config": config, "rank": 1, "address": "10.0.0.2", "collective_milliseconds": 5, "num_rollouts": 3, "first_rollout": 1, "plugin_logs": "/l", "num_threads": 1}
        yield b"\1s" + json.dumps({**start, "weights": "/c", "checkpoint": "/c", "iteration": 2, "left_out": 0}).encode()
        yield b"\2" + report()
        yield b"\3e" + json.dumps({"config": config, "longest_prompt": 96, "kv_cache_bytes": 4096, "num_threads": 1}).encode()
        yield b"\4" + json.dumps({"max_request_tokens": 96, "device": "the CPU", "memory": ["keys 1 GiB"]}).encode()
        yield b"\5" + struct.pack("<QQff", 1, 2, -0.5, -1.5)
    elif target == "follower_greeting_fuzz":
        yield from (b"\4" + f"{rank} 3".encode() for rank in (1, 3, 4))
    elif target == "handshake_fuzz":
        hello, proof = b"c" * 32 + b"\4rank2 5 1 0 10.0.0.2", b"p" * 32
        frames = [b"SLMF" + struct.pack("<IQ", kind, len(payload)) + payload for kind, payload in ((201, hello), (203, proof))]
        yield from (piece + frames[0] + frames[1] for piece in (b"\1", b"\x10", b"\xff"))
        yield b"\1" + frames[1]
        yield b"\1" b"2 5 -1 40123 10.0.0.2"
    elif target == "node_frames_fuzz":
        start = {"worker": 3, "name": "rank 1", "device": -1, "command": ["", "worker"], "epoch": 2, "log": "/l", "has_data": True}
        yield b"\0" + json.dumps({"program": "5-ab", "host": "gpu7", "rank": 1, "num_devices": 8}).encode()
        yield b"\1" + json.dumps({"worker": 3, "is_data": False}).encode()
        yield b"\2" + json.dumps(start).encode()
        yield b"\3" + json.dumps({"worker": 3, "text": "ended with exit code 7", "last_lines": "  one"}).encode()
        yield b"\4rack[1-2]n[03,07],gpu5"
    elif target == "remote_engine_frames_fuzz":
        picture = struct.pack("<QqqQQ1sQ1sQ3q", 1, 0, 1, 0, 1, b"i", 1, b"p", 7, 1, 1, 1)
        request = struct.pack("<QQ1sQ2i", 7, 1, b"r", 2, 5, 6) + picture + struct.pack("<qQQ", 1, 0, 0)  # a part of two; adapter and salt
        scores = struct.pack("<?qqQi????qq", True, -1, 0, 1, 3, False, True, False, False, 0, 1)
        thoughts = struct.pack("<QQ?Q", 0, 0, False, 0)
        sampling = struct.pack("<qddqddddqQQ1sQiQid4?", 9, 1, 1, -1, 0, 0, 0, 1, 0, 1, 1, b"x", 1, 3, 1, 4, -1.5, *[False] * 4)
        yield b"\0" + request + scores + thoughts + sampling + struct.pack("<6Q?Q", *[0] * 6, True, 11)  # grammars, lists, a seed
        head = struct.pack("<Qqqqdd8III", 7, 12, 4, 0, 0.5, 1, 2, 2, 1, 0, 0, 4, 0, 0, 0, 5)
        end = struct.pack("<BBBiQ", 0, 0, 1, 2, 0) + struct.pack("<5q", 5, 1, 2, 2, 1)  # a finish, and drafts
        yield b"\1" + struct.pack("<Q", 1) + head + struct.pack("<2i2fqq4h", 8, 9, -1, -2, 3, 2, 0, 3, 1, 2) + end
        yield b"\2" + struct.pack("<QQQ4s", 8, 4, 4, b"abcd")
        rest = struct.pack("<qQQQB", 0, 4, 3, 17, 0)  # epoch, publication, base, changes, check
        yield b"\3" + struct.pack("<QBBqBQ2sQB?", 1, 5, 2, 3, 1, 2, b"/m", 0, 2, False) + rest
        yield b"\3" + struct.pack("<QBBqBQQ2fB?", 3, 5, 2, 4, 3, 0, 2, 0.5, -0.5, 0, True) + rest
        yield b"\3" + struct.pack("<QBBqBQQB?", 2, 7, 2, 0, 0, 0, 0, 0, False) + rest
        load = struct.pack("<6q3d?10qd5q", *range(6), 0, 0.5, 1, False, *range(10), 0.25, 7, 3, 5, 4, 1)  # grammars and drafts at its end
        yield b"\4" + struct.pack("<Q??", 1, False, True) + load + struct.pack("<dQ2sQ", 0.004, 2, b"\1\2", 0)
        yield b"\5\1"
        yield b"\6" + struct.pack("<Q", 3)
    elif target == "judge_answer_fuzz":
        yield from (b"\0" + answer.encode() for answer in JUDGE_ANSWERS)
        yield f"\1HTTP/1.1 200 OK\r\nContent-Length: {len(TEACHER_ANSWER)}\r\n\r\n{TEACHER_ANSWER}".encode()
    elif target == "checkpoint_files_fuzz":
        yield b"\0" + json.dumps(COMMITTED).encode()
        yield b"\1" + json.dumps(CHECKPOINT_RUN).encode()
    elif target == "generation_config_fuzz":
        yield from (json.dumps(config).encode() for config in GENERATION_CONFIGS)
        yield from (file.read_bytes() for file in MODELS.rglob("generation_config.json"))
    elif target == "tokenizer_config_fuzz":
        yield from (file.read_bytes() for file in TOKENIZERS.rglob("tokenizer_config.json"))
        yield json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": [{"name": "a", "template": "{{ x }}"}]}).encode()
    elif target == "protobuf_fuzz":
        yield b"\x08\x96\x01\x12\x07testing"
        yield b"\x11" + struct.pack("<d", 0.5) + b"\x1a\x06\x0a\x04\x06\xac\x02\x07\x25\x01\x02\x03\x04"
    elif target == "tinker_request_fuzz":
        for file in sorted((ROOT / "tests" / "fixtures" / "tinker" / "messages").glob("*.json")):
            yield from (base64.b64decode(row["base64"]) for row in json.loads(file.read_text()) if "base64" in row)
    elif target == "safetensors_index_fuzz":
        yield from (json.dumps(index).encode() for index in INDEXES)
    elif target == "arrow_rows_fuzz":
        rows = ROOT / "tests" / "fixtures" / "rows"
        yield b"\0" + (ROOT / "tests" / "fixtures" / "parquet" / "rows.parquet").read_bytes()
        yield from (b"\1" + (rows / name).read_bytes() for name in ("file.arrow", "stream.arrow"))
        yield b"\2" + (rows / "rows.csv").read_bytes()
        yield b"\3" + (rows / "rows.csv.gz").read_bytes()
        yield b"\5" + (rows / "rows.jsonl.gz").read_bytes()
        yield b"\6" + (rows / "rows.jsonl.zst").read_bytes()
    elif target == "hub_files_fuzz":
        page = b"---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: data/train-*\n- config_name: b\n  data_files: '**/*.csv'\n---\n"
        yield from (word + b"\n" + page for word in (b"a/b:train[:3]", b"a/b@v1:b/train", b"hf://datasets/a/b:main/x.jsonl", b"a/b"))
    elif target == "hub_file_list_fuzz":
        large = {"rfilename": "x/model.safetensors", "size": 9, "blobId": "a" * 40, "lfs": {"sha256": "b" * 64, "size": 9}}
        files = [{"rfilename": "config.json", "size": 7, "blobId": "a" * 40}, large, {"rfilename": "../x", "size": None}]
        yield from (json.dumps({"sha": "a" * 40, "siblings": files[:n]}).encode() for n in (0, 2, 3))
        yield json.dumps({"commit": "a" * 40, "files": [{"path": "config.json", "size": 7, "checksum": "a" * 40}]}).encode()
    elif target == "json_values_fuzz":
        yield from ((ROOT / "tests" / "fixtures" / "rows" / name).read_bytes() for name in ("list.json", "objects.json"))
        yield from (b"[]", b'[{"a": "]\\""}, 1]', b'{"a": 1}{"b": [2]}', b"\xef\xbb\xbf[null]")
    elif target == "message_parser_fuzz":
        with lzma.open(ROOT / "tests" / "fixtures" / "tool_calls" / "cases.jsonl.xz", "rt") as lines:
            for case in list(map(json.loads, lines))[1::3]:
                parser = {"hermes": "qwen25", "qwen3_coder": "qwen25"}.get(case["tool_call_parser"], case["tool_call_parser"])
                how = 4 * case.get("thinking_open", False) + 8 * (case.get("finish") == "length")
                yield bytes([5 * CALL_FORMATS.index(parser), how, 128]) + case["output"].encode()
    elif target == "grammar_fuzz":
        kinds = ["json_schema", "regex", "ebnf", "structural_tag"]
        with lzma.open(ROOT / "tests" / "fixtures" / "grammars" / "cases.jsonl.xz", "rt") as lines:
            for case in map(json.loads, lines):
                source = case["src"] if isinstance(case["src"], str) else json.dumps(case["src"], ensure_ascii=False)
                yield bytes([kinds.index(case["kind"]), 2]) + source.encode()
    elif target == "reward_fuzz":
        for choice in range(NUM_REWARD_CHOICES):
            yield from (bytes([choice]) + response.encode() for response in RESPONSES)


def without_most_of_the_vocabulary(file):
    tokenizer = json.loads(file.read_text())
    model = tokenizer["model"]
    model["vocab"] = dict(list(model["vocab"].items())[:300])
    model["merges"] = [pair for pair in model["merges"][:20] if "".join(pair if isinstance(pair, list) else pair.split()) in model["vocab"]]
    return json.dumps(tokenizer).encode()


FRAME_VERSION = 3  # kVersion of train/share_frame.cpp


def share():
    """As train/share_frame.cpp writes it: one sample of three tokens, one step of one micro-batch."""
    sample = struct.pack("<qqq", 0, 0, 0) + struct.pack("<Q3i", 3, 7, 8, 9)  # ordinal, group, rollout; tokens
    sample += struct.pack("<q", 1) + struct.pack("<Q2B", 2, 1, 1) + struct.pack("<Q2f", 2, -0.5, -1.5)  # prompt length, mask, log-probs
    sample += struct.pack("<QQQQ", 0, 0, 0, 0) + struct.pack("<Q4h", 4, 0, 3, 1, 2)  # no teacher, versions, top-p; experts of two rows
    sample += struct.pack("<ddqBQ", 0.5, 1.0, 2, 0, 0)  # rewards, mask total, truncated, source
    return struct.pack("<IQq", FRAME_VERSION, 1, 0) + sample + struct.pack("<QqdqQQq", 1, 1, 1.0, 1, 1, 1, 0)


def report():
    """The same of a report: one step of one metric, log-probs of one sample."""
    metrics = struct.pack("<QQ1sd", 1, 1, b"m", 0.5)
    step = struct.pack("<Qq", 1, 0) + metrics + struct.pack("<Q", 0)  # not skipped
    return struct.pack("<I", FRAME_VERSION) + step + struct.pack("<QQQ2f", 0, 1, 2, -0.5, -1.5) + metrics + metrics + struct.pack("<qq", 3, 3)


def safetensors(tensors):
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def main():
    out = Path(sys.argv[1])
    for source in sorted(Path(__file__).parent.glob("*_fuzz.cpp")):
        folder = out / source.stem
        folder.mkdir(parents=True, exist_ok=True)
        count = 0
        for seed in seeds(source.stem):
            if len(seed) <= LARGEST_SEED_BYTES:
                (folder / f"seed_{count:03}").write_bytes(seed)
                count += 1
        if count == 0:
            sys.exit(f"{source.stem}: no seeds; add some to {Path(__file__).name}")


if __name__ == "__main__":
    main()

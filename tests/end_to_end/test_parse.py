"""`slime parse`: outputs of models to messages, on JSON lines."""

import json
import subprocess

from conftest import SLIME

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}}}}]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def parse(*lines, arguments=()):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return subprocess.run([str(SLIME), "parse", *arguments], input=text, capture_output=True, text=True, timeout=60)


def test_a_message_a_line():
    done = parse(
        {"text": "<think>\nSum.\n</think>\n\nLet me add." + CALL, "tools": TOOLS, "tool_call_parser": "qwen25", "reasoning_parser": "qwen3"},
        {"text": CALL, "tools": TOOLS, "tool_choice": "none", "tool_call_parser": "auto", "chat_template": "<tool_call>"},
        {"text": "Hm", "reasoning_parser": "qwen3", "prompt": "<|im_start|>assistant\n<think>\n", "finish": "length"},
        arguments=["--splits"],
    )
    assert done.returncode == 0, done.stderr
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert first["content"] == "Let me add." and first["reasoning_content"] == "Sum." and first["finish_reason"] == "tool_calls"
    assert first["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert first["differs"] is None and first["splits"] > 100
    assert second["content"] == CALL and second["tool_calls"] == []
    assert third["reasoning_content"] == "Hm" and third["content"] is None and third["finish_reason"] == "length"


def test_a_wrong_name_is_refused_with_the_list():
    done = parse({"text": "a", "tool_call_parser": "qwen24"})
    assert done.returncode == 2
    assert "standard input, line 1: tool-call parser" in done.stderr and "qwen3_coder" in done.stderr
    assert parse({"text": "a", "finish": "end"}).returncode == 2
    assert parse({"tools": []}).returncode == 2

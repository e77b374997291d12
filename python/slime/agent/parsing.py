"""What a model wrote, taken apart: its reasoning, the text, the calls of tools.

Families of tool calls are known by SGLang's names. One that is not in the table is left to SGLang's own parser where that
package is installed.
"""

import dataclasses
import json
import re

__all__ = ["ParsedModelOutput", "parse_model_output", "parse_text", "parse_tool_uses", "check_parser"]

_JSON_CALLS = ("qwen", "qwen25", "hermes")
_XML_CALLS = ("qwen3_coder",)
_GLM_CALLS = ("glm", "glm45", "glm47")
_ENDS_OF_TURN = ("<|im_end|>", "<|endoftext|>", "<|user|>", "<|observation|>", "<|eot_id|>", "</s>")


@dataclasses.dataclass(frozen=True)
class ParsedModelOutput:
    reasoning: str
    text: str
    tool_uses: list  # [{"name", "input"}]
    ill_formed: bool = False  # something was meant as a call and could not be read


def parse_model_output(raw_output, *, tools_schema, tool_parser_name, reasoning_parser_name):
    """Of the decoded output with the mark of its end, if that is one of the commonest. Where the token that ended the turn is
    known, parse_text is given what stands before it."""
    text = raw_output
    for mark in _ENDS_OF_TURN:
        if text.rstrip().endswith(mark):
            text = text.rstrip()[: -len(mark)]
    return parse_text(
        text, tools_schema=tools_schema, tool_parser_name=tool_parser_name, reasoning_parser_name=reasoning_parser_name
    )


def parse_text(text, *, tools_schema, tool_parser_name, reasoning_parser_name, is_thinking=False):
    """Of the decoded output without its end. `is_thinking`: the prompt ends inside a thought."""
    reasoning = ""
    if reasoning_parser_name:
        head, mark, tail = text.partition("</think>")
        if mark:
            reasoning, text = head, tail
        elif is_thinking or "<think>" in text:
            reasoning, text = text, ""  # it was cut off while it thought
        reasoning = reasoning.replace("<think>", "", 1).strip()
    text, tool_uses, ill_formed = parse_tool_uses(text, tools_schema, tool_parser_name)
    return ParsedModelOutput(reasoning, (text or "").strip(), tool_uses, ill_formed)


def parse_tool_uses(body_text, tools_schema, tool_parser_name):
    """(text without calls, calls, whether one of them could not be read)"""
    if not tools_schema:
        return body_text, [], False
    name = tool_parser_name or "qwen3_coder"
    names = {tool.get("function", {}).get("name") for tool in tools_schema}
    readers = {**dict.fromkeys(_JSON_CALLS, _json_call), **dict.fromkeys(_GLM_CALLS, _glm_call)}
    if name not in readers and name not in _XML_CALLS:
        return _by_sglang(body_text, tools_schema, name)
    text, uses, bad = _calls(body_text, readers.get(name, _xml_call))
    if not uses and name not in _XML_CALLS:  # some models fall back into this form
        xml_text, uses, _ = _calls(body_text, _xml_call)
        if uses:
            text, bad = xml_text, False
    if name in _XML_CALLS or not tool_parser_name:
        uses = [use for use in uses if use["name"] in names]
        text = text if uses else body_text
    return text, uses, bad


def check_parser(name):
    """ValueError for a name under which no call could be read."""
    if name is not None and name not in _JSON_CALLS + _XML_CALLS + _GLM_CALLS:
        _import_sglang(name)


def _calls(text, read):
    kept, uses, bad, last = [], [], False, 0
    for match in re.finditer(r"<tool_call>(.*?)(?:</tool_call>|\Z)", text, re.DOTALL):
        use, is_whole = read(match.group(1).strip())
        bad = bad or not is_whole
        if use is None:
            continue
        uses.append(use)
        kept.append(text[last : match.start()])
        last = match.end()
    return "".join(kept) + text[last:], uses, bad


def _arguments(value):
    """(a dictionary, whether it was one)"""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {"_raw_arguments": value}, False
    return (value, True) if isinstance(value, dict) else ({"_raw_arguments": value}, False)


def _json_call(body):
    try:
        call = json.loads(body)
        arguments, is_whole = _arguments(call.get("arguments", call.get("parameters", {})))
        return {"name": call["name"], "input": arguments}, is_whole
    except (ValueError, KeyError, AttributeError):
        return None, False


def _xml_call(body):
    match = re.match(r"<function=([^>]+)>(.*?)(?:</function>|\Z)", body, re.DOTALL)
    if match is None:
        return None, False
    parameters = re.findall(r"<parameter=([^>]+)>(.*?)</parameter>", match.group(2), re.DOTALL)
    return {"name": match.group(1).strip(), "input": {key: value.strip() for key, value in parameters}}, True


def _glm_call(body):
    name = re.split(r"[\n<]", body, maxsplit=1)[0].strip()
    pairs = re.findall(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", body, re.DOTALL)
    values = {}
    for key, value in pairs:
        try:
            values[key.strip()] = json.loads(value)
        except ValueError:
            values[key.strip()] = value
    return ({"name": name, "input": values}, True) if name else (None, False)


def _import_sglang(name):
    try:
        from sglang.srt.entrypoints.openai.protocol import Function, Tool
        from sglang.srt.function_call.function_call_parser import FunctionCallParser
    except ImportError:
        known = ", ".join(_JSON_CALLS + _XML_CALLS + _GLM_CALLS)
        raise ValueError(f"tool calls of {name!r} need the package sglang; known without it: {known}") from None
    return Function, Tool, FunctionCallParser


def _by_sglang(text, tools_schema, name):
    Function, Tool, FunctionCallParser = _import_sglang(name)
    tools = [Tool(type="function", function=Function(**tool["function"])) for tool in tools_schema]
    parser = FunctionCallParser(tools=tools, tool_call_parser=name)
    if not parser.has_tool_call(text):
        return text, [], False
    text, calls = parser.parse_non_stream(text)
    uses, bad = [], False
    for call in calls:
        arguments, is_whole = _arguments(call.parameters or "{}")
        bad = bad or not is_whole
        uses.append({"name": call.name or "tool", "input": arguments})
    return text, uses, bad

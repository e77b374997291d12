"""What a model wrote, taken apart: its reasoning, the text, the calls of tools.

Families of tool calls are known by SGLang's names. One that is not in the table is left to SGLang's own parser where that
package is installed.
"""

import dataclasses
import functools
import json
import re

__all__ = ["ParsedModelOutput", "parse_model_output", "parse_text", "parse_tool_uses", "check_parser"]

_JSON_CALLS = ("qwen", "qwen25", "hermes")
_XML_CALLS = ("qwen3_coder",)
_GLM_CALLS = ("glm", "glm45", "glm47")
_BEGIN, _END = "<tool_call>", "</tool_call>"
_JSON = json.JSONDecoder()
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
    schemas = {}
    for tool in tools_schema:
        function = tool.get("function") or {}
        schemas[function.get("name")] = (function.get("parameters") or {}).get("properties") or {}
    names = set(schemas)
    _xml_call = functools.partial(_read_xml_call, schemas)
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
    while (begin := text.find(_BEGIN, last)) >= 0:
        inside = begin + len(_BEGIN)
        end = text.find(_END, _end_of_json(text, inside))
        body = text[inside:] if end < 0 else text[inside:end]
        use, is_whole = read(body.strip())
        bad = bad or not is_whole
        after = len(text) if end < 0 else end + len(_END)
        kept.append(text[last : after if use is None else begin])
        if use is not None:
            uses.append(use)
        last = after
    return "".join(kept) + text[last:], uses, bad


def _end_of_json(text, begin):
    """Where a JSON object that begins there ends, whose strings may hold any mark; `begin` where there is none."""
    match = re.compile(r"\s*(?=\{)").match(text, begin)
    try:
        return _JSON.raw_decode(text, match.end())[1] if match else begin
    except (ValueError, RecursionError):
        return begin


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


def _read_xml_call(schemas, body):
    match = re.match(r"<function=([^>]+)>(.*?)(?:</function>|\Z)", body, re.DOTALL)
    if match is None:
        return None, False
    name = match.group(1).strip()
    schema = schemas.get(name, {})
    parameters = re.findall(r"<parameter=([^>]+)>(.*?)</parameter>", match.group(2), re.DOTALL)
    return {"name": name, "input": {key: _xml_value(value, schema.get(key)) for key, value in parameters}}, True


def _xml_value(text, schema):
    """A text is what stands between the line breaks around it; other types are JSON, as far as it is some."""
    text = text.removeprefix("\n").removesuffix("\n")
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind in (None, "string"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


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

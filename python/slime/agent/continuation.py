"""Text that a chat template puts behind a turn of the engine, read off a rendering.

The turn itself is not looked for in the rendering: templates drop its thoughts, trim it or write its calls anew. A mark
stands in its place, and what follows the mark is the end of the turn and everything after it:

    <|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nMARK<|im_end|>\n<|im_start|>tool\n ...
                                                              ^ behind a turn that was cut off
                                                                        ^ behind one that sampled its <|im_end|>
"""

import functools
import json
import weakref

__all__ = ["end_marks", "render", "template_messages", "text_behind", "tokens_behind", "unfinished"]

_MARK = "slime0turn0mark"
_LATER = "slime0later0mark"


_marks = weakref.WeakKeyDictionary()  # by tokenizer
_text_arguments = weakref.WeakKeyDictionary()


def end_marks(tokenizer):
    """Texts of the tokenizer's control tokens, one of which ends a turn."""
    if tokenizer not in _marks:
        _marks[tokenizer] = _read_marks(tokenizer)
    return _marks[tokenizer]


def _read_marks(tokenizer):
    texts = set(getattr(tokenizer, "all_special_tokens", None) or ())
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    texts.update(str(token) for token in added.values() if getattr(token, "special", False))
    texts.add(getattr(tokenizer, "eos_token", None))
    return {str(text) for text in texts if text}


def takes_arguments_as_text(tokenizer):
    """Whether the template wants a call's arguments as JSON text; told by trying, once: some fail on an object, some print it
    as Python does."""
    if tokenizer not in _text_arguments:
        _text_arguments[tokenizer] = _try_arguments(tokenizer)
    return _text_arguments[tokenizer]


def _try_arguments(tokenizer):
    def show(arguments):
        call = {"id": "call00000", "type": "function", "function": {"name": "f", "arguments": arguments}}
        messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
        try:
            return tokenizer.apply_chat_template(messages, tools=None, tokenize=False, add_generation_prompt=False)
        except Exception:  # a template refuses by exceptions of any kind
            return None

    shown = show({_MARK: "y"})
    return (shown is None or f"{{'{_MARK}'" in shown) and show(json.dumps({_MARK: "y"})) is not None


def template_messages(tokenizer, messages):
    """The messages with the arguments of calls in the form that the template takes."""
    if not any(message.get("tool_calls") for message in messages) or not takes_arguments_as_text(tokenizer):
        return messages
    return [_with_text_arguments(message) if message.get("tool_calls") else message for message in messages]


def _with_text_arguments(message):
    calls = []
    for call in message["tool_calls"]:
        function = call.get("function") or {}
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
        calls.append({**call, "function": {**function, "arguments": text}})
    return {**message, "tool_calls": calls}


def render(tokenizer, messages, tools=None, add_generation_prompt=True, **options):
    """The conversation as text."""
    messages = template_messages(tokenizer, messages)
    return tokenizer.apply_chat_template(
        messages, tools=tools, tokenize=False, add_generation_prompt=add_generation_prompt, **options
    )


def unfinished(tokenizer, messages, tools=None, **options):
    """The conversation as text up to the end of its last message, an answer that is to be gone on with; None where the
    template does not show it."""
    last = {**messages[-1], "content": _MARK}
    before, mark, _ = render(tokenizer, [*messages[:-1], last], tools, add_generation_prompt=False, **options).rpartition(_MARK)
    return before + messages[-1]["content"] if mark else None


def _stand_ins(message):
    """The turn with the mark as the last thing in it: in its last call, in its first, where a template shows no other, and
    without calls."""
    calls = message.get("tool_calls") or []
    for i in dict.fromkeys((len(calls) - 1, 0)) if calls else ():
        function = calls[i].get("function")
        if isinstance(function, dict):
            arguments = function.get("arguments")
            names = list(arguments) if isinstance(arguments, dict) and arguments else ["mark"]
            marked = {**calls[i], "function": {**function, "arguments": {names[-1]: _MARK}}}
            yield {**message, "tool_calls": [*calls[:i], marked, *calls[i + 1 :]]}
    yield {"role": message.get("role", "assistant"), "content": _MARK}


def _behind_mark(text):
    _, mark, behind = text.partition(_MARK)
    return behind if mark and _MARK not in behind else None


def _common(a, b):
    for i, (left, right) in enumerate(zip(a, b)):
        if left != right:
            return a[:i]
    return a[: min(len(a), len(b))]


def _first_mark(text, marks):
    """(where the first of the marks is, its length); None without one."""
    found = [(at, -len(mark)) for mark in marks if (at := text.find(mark)) >= 0]
    return (min(found)[0], -min(found)[1]) if found else None


def text_behind(tokenizer, output_ids, messages, depth, tools=None, end=None, **options):
    """What the template puts behind `output_ids`, the turn that is messages[depth - 1], the generation prompt included; None
    when it does not show that turn, or ends it with another role's mark than was sampled.

    `end`: the text of the token that ended the turn, "" when it was cut off; None: the last token's, where that is a control
    token. `options` go to the template."""
    marks = end_marks(tokenizer)
    if end is None:
        last = tokenizer.decode(list(output_ids[-1:]), skip_special_tokens=False) if output_ids else ""
        end = last if last in marks else ""
    before, turn, rest = messages[: depth - 1], messages[depth - 1], messages[depth:]
    later = [{**message, "content": _LATER} for message in rest]

    @functools.cache
    def shown():
        """How many of the messages behind the turn the template shows where the turn is itself."""
        try:
            return render(tokenizer, [*before, turn, *later], tools, **options).count(_LATER)
        except Exception:
            return len(later)

    for stand_in in _stand_ins(turn):
        if not end and stand_in.get("tool_calls"):
            continue  # a call that was cut off is not closed by the template's text
        try:
            behind = _behind_mark(render(tokenizer, [*before, stand_in, *rest], tools, **options))
            probe = _behind_mark(render(tokenizer, [*before, stand_in, *later], tools, **options))
        except Exception:  # this form of a message is not for the template
            continue
        if behind is None or probe is None or probe.count(_LATER) < shown():
            continue
        # Up to the text of the next message, which may have marks of its own.
        gap = _common(behind, probe.partition(_LATER)[0])
        if not end:
            return behind
        if (at := gap.find(end)) >= 0:
            return behind[at + len(end) :]
        if stand_in.get("tool_calls"):
            continue
        found = _first_mark(gap, marks)
        if found is None:
            return behind  # a template without control tokens
        if _ends_with_mark(tokenizer, [*before, stand_in], tools, marks, options):
            return behind[sum(found) :]  # the template's own end stands for the sampled one
    return None


def tokens_behind(tokenizer, output_ids, tail, end=None):
    """Tokens of `tail`, the text behind a turn, as they are behind the control token that ended it: some tokenizers put a
    space before a text that begins a line of its own."""
    if not tail:
        return []
    if output_ids:
        end = tokenizer.decode(list(output_ids[-1:]), skip_special_tokens=False) if end is None else end
        if end in end_marks(tokenizer):
            ids = list(tokenizer(end + tail, add_special_tokens=False)["input_ids"])
            if ids[:1] == list(output_ids[-1:]):
                return ids[1:]
    return list(tokenizer(tail, add_special_tokens=False)["input_ids"])


def _ends_with_mark(tokenizer, messages, tools, marks, options):
    """Whether the template closes a turn by a mark of its own, also where nothing follows; otherwise the next role's mark
    is what ends it."""
    try:
        closing = _behind_mark(render(tokenizer, messages, tools, add_generation_prompt=False, **options))
    except Exception:
        return False
    return bool(closing) and _first_mark(closing, marks) is not None


def canonical_arguments(value):
    """A call's arguments as text that does not depend on how a client writes them: order of keys, white space, fields that
    are null."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else {}
        except ValueError:
            return value.strip()
    return json.dumps(_without_nulls(value), sort_keys=True, ensure_ascii=False, default=str)


def _without_nulls(value):
    if isinstance(value, dict):
        return {str(name): _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, (list, tuple)) else value

"""An adapter in this process beside an engine that samples what it is told."""

import asyncio
import json

import jinja2
from slime.agent.adapters import AnthropicAdapter, OpenAIAdapter, common
from slime.agent.http_app import Request
from slime.utils.types import Sample

# Thoughts are shown behind the last question alone, and the last message gets an empty one.
THINKING = """{%- for t in tools or [] %}{{- '<|im_start|>system\n' + (t | tojson) + '<|im_end|>\n' }}{%- endfor %}
{%- set ns = namespace(q=0) %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.q = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}{%- set thought = m.reasoning_content or '' %}
{%- if m.role == 'assistant' and loop.index0 > ns.q and (loop.last or thought) %}{{- '<think>\n' + thought + '\n</think>\n\n' }}{%- endif %}
{{- m.content or '' }}{%- for c in m.tool_calls or [] %}{{- '\n<tool_call>\n' + ({'name': c.function.name, 'arguments': c.function.arguments} | tojson) + '\n</tool_call>' }}{%- endfor %}
{{- '<|im_end|>\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
PLAIN = """{%- for t in tools or [] %}{{- t | tojson }}{%- endfor %}{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + (m.content or '') | trim }}
{%- for c in m.tool_calls or [] %}{{- (c.function | tojson) }}{%- endfor %}{{- '<|im_end|>\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
# A turn is ended by the mark of whoever comes next.
NEXT_ROLE = """{{- '[gMASK]' }}{%- for t in tools or [] %}{{- '<|system|>' + (t | tojson) }}{%- endfor %}
{%- for m in messages %}{{- '<|observation|>' if m.role == 'tool' else '<|' + m.role + '|>' }}{{- '\n' + (m.content or '') }}
{%- for c in m.tool_calls or [] %}{{- '\n' + c.function.name + '\n' + (c.function.arguments | tojson) }}{%- endfor %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"""
# Calls end otherwise than answers do, and a tool's message needs a call before it.
CHANNELS = """{%- for t in tools or [] %}{{- t | tojson }}{%- endfor %}{%- set ns = namespace(call=none) %}
{%- for m in messages %}{%- if m.role == 'assistant' %}{%- if m.tool_calls %}{%- for c in m.tool_calls %}{%- set ns.call = c.function.name %}
{{- '<|start|>assistant to=' + c.function.name + '<|message|>' + (c.function.arguments | tojson) + '<|call|>' }}{%- endfor %}
{%- else %}{{- '<|start|>assistant<|message|>' + m.content + ('<|return|>' if loop.last and not add_generation_prompt else '<|end|>') }}{%- endif %}
{%- elif m.role == 'tool' %}{%- if not ns.call %}{{- raise_exception('no call') }}{%- endif %}{{- '<|start|>' + ns.call + '<|message|>' + m.content + '<|end|>' }}
{%- else %}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}"""
# No control token in the template.
WORDS = """{%- for t in tools or [] %}{{- t | tojson }}{%- endfor %}{%- for m in messages %}{{- m.role | upper + ': ' + (m.content or '') | trim }}
{%- for c in m.tool_calls or [] %}{{- (c.function | tojson) }}{%- endfor %}{{- '\n\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- 'ASSISTANT:' }}{%- endif %}"""

# template, marks, the ends of a turn without and with a call
FAMILIES = {
    "thinking": (THINKING, ["<|im_start|>", "<|im_end|>"], "<|im_end|>", "<|im_end|>"),
    "plain": (PLAIN, ["<|im_start|>", "<|im_end|>", "<|endoftext|>"], "<|im_end|>", "<|endoftext|>"),
    "next_role": (NEXT_ROLE, ["[gMASK]", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"], "<|user|>", "<|observation|>"),
    "channels": (CHANNELS, ["<|start|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"], "<|return|>", "<|call|>"),
    "words": (WORDS, ["</s>"], "</s>", "</s>"),
}


class CharTokenizer:
    """One token for each character and each control token. 2000 and 97 are both "a": text does not tell which was sampled."""

    def __init__(self, family):
        source, self.all_special_tokens, self.eos_token, self.end_of_calls = FAMILIES[family]
        environment = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"])
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        environment.globals["raise_exception"] = self._refuse
        self._template = environment.from_string(source)

    @staticmethod
    def _refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    def __call__(self, text, add_special_tokens=True):
        ids = []
        while text:
            mark = next((mark for mark in self.all_special_tokens if text.startswith(mark)), None)
            ids.append(ord(text[0]) if mark is None else 3000 + self.all_special_tokens.index(mark))
            text = text[len(mark or "x") :]
        return {"input_ids": ids}

    def sampled(self, text):
        return [2000 if token == 97 else token for token in self(text)["input_ids"]]

    def decode(self, ids, skip_special_tokens=False):
        return "".join("a" if i == 2000 else self.all_special_tokens[i - 3000] if i >= 3000 else chr(i) for i in ids)

    def apply_chat_template(self, messages, tools=None, tokenize=True, add_generation_prompt=False, **options):
        text = self._template.render(messages=messages, tools=tools, add_generation_prompt=add_generation_prompt, **options)
        return self(text)["input_ids"] if tokenize else text


class _Request(Request):
    def __init__(self, path, body, key, is_gone):
        super().__init__("POST", path, {"authorization": f"Bearer {key}"}, json.dumps(body).encode(), None)
        self.answer, self.is_gone = None, is_gone

    async def reply(self, response):
        self.is_answered = True
        if self.is_gone:
            raise ConnectionResetError("the client is gone")
        self.answer = response


class World:
    """`headers` are those of the last answer; `is_gone`: clients do not wait for theirs."""

    def __init__(self, monkeypatch, family="thinking", kind="openai", **options):
        self.tokenizer, self.calls, self.outputs = CharTokenizer(family), [], []
        adapter = OpenAIAdapter if kind == "openai" else AnthropicAdapter
        self.path = "/v1/chat/completions" if kind == "openai" else "/v1/messages"
        self.adapter = adapter(tokenizer=self.tokenizer, sglang_url="http://engine", tool_parser="qwen25", **options)
        self.headers, self.is_gone = {}, False
        monkeypatch.setattr(common, "post", self._post)

    async def _post(self, url, payload, **options):
        text, end = self.outputs.pop(0)
        ids = self.tokenizer.sampled(text + (end or ""))
        is_mark = end in self.tokenizer.all_special_tokens
        finish = {"type": "stop", "matched": ids[-1] if is_mark else end} if end else {"type": "length"}
        log_probs = [-(len(self.calls) + 1) - i / 1024 for i in range(len(ids))]
        self.calls.append((list(payload["input_ids"]), ids, log_probs))
        entries = [[log_prob, token, None] for log_prob, token in zip(log_probs, ids)]
        return {"text": "", "meta_info": {"output_token_logprobs": entries, "finish_reason": finish, "weight_version": "3"}}

    def ask(self, body, *outputs, key="s", path=None):
        """(status, answer) of a request for which the engine samples `outputs`: [(text, the mark or the stop string that
        ends it, or None when it is cut off)]."""
        self.outputs += outputs
        request = _Request(path or self.path, body, key, self.is_gone)
        self.adapter._look_at(request)
        asyncio.run(self.adapter.app._answer(request))
        if request.answer is None:
            return None, None
        self.headers = request.answer.headers
        text = request.answer.body.decode()
        return request.answer.status, json.loads(text) if text.startswith("{") else text

    def finish(self, key="s", **options):
        return asyncio.run(self.adapter.finish_session(key, base_sample=Sample(index=7), reward=1.0, **options))

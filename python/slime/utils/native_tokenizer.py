"""The program's own tokenizer and chat template for Python: what the run itself uses, without the package transformers.

Three children stay (`slime tokenize`, `detokenize`, `chat-template`); each reads a line and answers a line.
"""

import json
from pathlib import Path

from slime.line_child import LineChild

__all__ = ["NativeTokenizer"]


def _ask(child, record):
    answer = child.call(record)
    if "error" in answer:
        raise ValueError(f"the chat template refused: {answer['error']['message']}")
    return answer


class NativeTokenizer:
    """The methods of a tokenizer that slime.utils.mask_utils asks for."""

    def __init__(self, directory):
        self._tokenize = LineChild("tokenize", "--model", str(directory), "--no-special-tokens")
        self._template = LineChild("chat-template", "--model", str(directory))
        self._detokenize = LineChild("detokenize", "--model", str(directory))
        self._file = Path(directory) / "tokenizer.json"

    def __call__(self, text, add_special_tokens=False):
        if add_special_tokens:
            raise ValueError("NativeTokenizer: special tokens are the chat template's")
        if isinstance(text, (list, tuple)):
            return {"input_ids": [self(each)["input_ids"] for each in text]}
        return {"input_ids": _ask(self._tokenize, {"text": text})["ids"]}

    def encode(self, text, add_special_tokens=False):
        return self(text, add_special_tokens)["input_ids"]

    def decode(self, ids):
        return _ask(self._detokenize, {"ids": list(ids)})["text"]

    def get_added_vocab(self):
        if not self._file.exists():
            return {}
        return {token["content"]: token["id"] for token in json.loads(self._file.read_text())["added_tokens"]}

    def conversation_mask(self, messages, tools=None, loss_mask_type="auto"):
        """(token ids, mask) of a whole conversation, as supervised training of the program makes them."""
        record = {"messages": messages, "loss_mask": loss_mask_type}
        if tools:
            record["options"] = {"tools": tools}
        answer = _ask(self._template, record)
        return answer["ids"], answer["loss_mask"]

    def apply_chat_template(
        self, messages, tokenize=True, add_generation_prompt=False, tools=None, return_dict=False, **options
    ):
        options.pop("add_special_tokens", None)
        if return_dict or options.pop("return_assistant_tokens_mask", False):
            raise ValueError("NativeTokenizer: returns text or token ids")
        options["add_generation_prompt"] = add_generation_prompt
        if tools:
            options["tools"] = tools
        answer = _ask(self._template, {"messages": messages, "options": options})
        return answer["ids"] if tokenize else answer["text"]

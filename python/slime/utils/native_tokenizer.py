"""The program's own tokenizer and chat template for Python: what the run itself uses, without the package transformers.

Three children stay (`slime tokenize`, `detokenize`, `chat-template`); each reads a line and answers a line.
"""

import atexit
import json
import subprocess
import threading
from pathlib import Path

from slime.program import find_program, program_environment

__all__ = ["NativeTokenizer"]


class _Child:
    def __init__(self, *words):
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [find_program(), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=program_environment(),
        )
        atexit.register(self._process.kill)

    def call(self, record):
        with self._lock:
            try:
                self._process.stdin.write(json.dumps(record).encode() + b"\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            except BrokenPipeError:
                line = b""
            if not line:
                raise RuntimeError(self._process.stderr.read().decode("utf-8", "replace").strip())
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(f"the chat template refused: {answer['error']['message']}")
        return answer


class NativeTokenizer:
    """The methods of a tokenizer that slime.utils.mask_utils asks for."""

    def __init__(self, directory):
        self._tokenize = _Child("tokenize", "--model", str(directory), "--no-special-tokens")
        self._template = _Child("chat-template", "--model", str(directory))
        self._detokenize = _Child("detokenize", "--model", str(directory))
        self._file = Path(directory) / "tokenizer.json"

    def __call__(self, text, add_special_tokens=False):
        if add_special_tokens:
            raise ValueError("NativeTokenizer: special tokens are the chat template's")
        return {"input_ids": self._tokenize.call({"text": text})["ids"]}

    def encode(self, text, add_special_tokens=False):
        return self(text, add_special_tokens)["input_ids"]

    def decode(self, ids):
        return self._detokenize.call({"ids": list(ids)})["text"]

    def get_added_vocab(self):
        if not self._file.exists():
            return {}
        return {token["content"]: token["id"] for token in json.loads(self._file.read_text())["added_tokens"]}

    def apply_chat_template(
        self, messages, tokenize=True, add_generation_prompt=False, tools=None, return_dict=False, **options
    ):
        options.pop("add_special_tokens", None)
        if return_dict or options.pop("return_assistant_tokens_mask", False):
            raise ValueError("NativeTokenizer: returns text or token ids")
        options["add_generation_prompt"] = add_generation_prompt
        if tools:
            options["tools"] = tools
        answer = self._template.call({"messages": messages, "options": options})
        return answer["ids"] if tokenize else answer["text"]

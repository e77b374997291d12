"""Flags of `slime train` from what a script has at hand: words, a namespace of argparse, a dictionary, keywords."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

__all__ = ["DEFAULTS_OF_SCRIPTS", "flag_words"]

# Where a model stands in the place of a command line. Rewards of scripts compare texts, which a mark such as <|im_end|> at the end
# would make different.
DEFAULTS_OF_SCRIPTS = {"rollout_skip_special_tokens": True}


def _words_of(name: str, value: Any) -> list[str]:
    flag = name if name.startswith("--") else "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, (list, tuple)):
        return [flag, *(_word(flag, each) for each in value)] if value else []
    return [flag, _word(flag, value)]


def _word(flag: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, (bool, int, float)):
        return repr(value) if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
    item = getattr(value, "item", None)  # a number of numpy's or torch's
    if callable(item):
        return _word(flag, item())
    raise TypeError(f"{flag}: {type(value).__name__} is no value of a flag; use text, a number, a path, a list or a dictionary")


def flag_words(args: Any = None, keywords: Mapping[str, Any] | None = None) -> list[str]:
    """The words of a command line. `args`: a list of words, a namespace, a dictionary, or the text of a model directory.
    None and False are flags that are not given. Keywords come last, so that they win.

    >>> flag_words(["--lr", "1e-6"], {"num_rollout": 3, "partial_rollout": True})
    ['--lr', '1e-6', '--num-rollout', '3', '--partial-rollout']
    """
    if args is None:
        words: list[str] = []
    elif isinstance(args, (str, os.PathLike)):
        words = ["--hf-checkpoint", os.fspath(args)]
    elif isinstance(args, Mapping):
        words = [word for name, value in args.items() for word in _words_of(name, value)]
    elif isinstance(args, (list, tuple)):
        words = [_word("a word of the command line", each) for each in args]
        if words and words[0] in ("train", "train-async"):
            words = [*words[1:], *(["--train-async"] if words[0] == "train-async" else [])]
    elif hasattr(args, "_command_words"):  # of parse_args
        words = args._command_words()
    elif hasattr(args, "__dict__"):
        words = [word for name, value in vars(args).items() for word in _words_of(name, value)]
    else:
        raise TypeError(f"{type(args).__name__}: flags are a list of words, a namespace, a dictionary or keywords")
    for name, value in (keywords or {}).items():
        words += _words_of(name, value)
    return words

"""Prompt data sets: JSON lines and Parquet, `path@[first:end]` for a range of rows."""

import copy
import itertools
import json
import logging
import os
import random
import re

from slime.utils.types import MultimodalTypes, Sample

__all__ = ["Dataset", "read_file"]

logger = logging.getLogger(__name__)


def _parse_generalized_path(path):
    """(path, slice or None)"""
    match = re.fullmatch(r"(.*)@\[(-?\d*):(-?\d*)\]", path, re.DOTALL)
    if match is None:
        return path, None
    first, end = (int(text) if text else None for text in match.groups()[1:])
    return match.group(1), slice(first, end)


def _json_lines(path):
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except ValueError as error:
                logger.warning("%s:%d is left out, it is no JSON: %s", path, number, error)


def _parquet_rows(path):
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"{path}: Parquet needs the package pyarrow in the plug-ins' Python") from error
    for batch in pyarrow.parquet.ParquetFile(path).iter_batches():
        yield from batch.to_pylist()


def read_file(path):
    """The rows as dictionaries."""
    path, rows = _parse_generalized_path(path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: no such data set")
    readers = {".jsonl": _json_lines, ".parquet": _parquet_rows}
    reader = readers.get(os.path.splitext(path)[1])
    if reader is None:
        raise ValueError(f"{path}: a data set is a .jsonl or .parquet file")
    if rows is None:
        return reader(path)
    if (rows.start or 0) < 0 or (rows.stop or 0) < 0:
        return iter(list(reader(path))[rows])
    return itertools.islice(reader(path), rows.start, rows.stop)


def _with_media(messages, row, multimodal_keys):
    """The messages with <image>, <video>, <audio> in their text replaced by the row's media, in order."""
    media = {}
    for name, key in multimodal_keys.items():
        kind = MultimodalTypes.get(name)
        if kind is not None and row.get(key) is not None:
            media[kind.placeholder] = (name, list(row[key]))
    if not media:
        return messages
    pattern = "(" + "|".join(re.escape(placeholder) for placeholder in media) + ")"
    filled = []
    for message in messages:
        parts = []
        if isinstance(message["content"], str):
            for text in re.split(pattern, message["content"]):
                if text in media:
                    name, left = media[text]
                    if not left:
                        raise ValueError(f"a prompt has more {text} than its row has of them")
                    item = left.pop(0)
                    parts.append(item if isinstance(item, dict) else {"type": name, name: item})
                elif text:
                    parts.append({"type": "text", "text": text})
            message = {**message, "content": parts}
        filled.append(message)
    for placeholder, (_, left) in media.items():
        if left:
            raise ValueError(f"a row has {len(left)} more than its prompt has of {placeholder}")
    return filled


def filter_long_prompt(samples, tokenizer, processor, max_length):
    """Those whose prompt has at most `max_length` tokens; all of them when prompts are lists of messages."""
    if max_length is None or not samples or not isinstance(samples[0].prompt, str):
        return samples

    def is_seen(sample):
        return processor is not None and any(value is not None for value in (sample.multimodal_inputs or {}).values())

    texts = [sample.prompt for sample in samples if not is_seen(sample)]
    of_texts = iter(tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else ())
    kept = []
    for sample in samples:
        if is_seen(sample):
            ids = processor(text=sample.prompt, **sample.multimodal_inputs)["input_ids"][0]
        else:
            ids = next(of_texts)
        if len(ids) <= max_length:
            kept.append(sample)
    return kept


class Dataset:
    """Samples with nothing generated yet, one for each row, in the order of the current epoch. `path`: a file or several."""

    def __init__(
        self,
        path,
        tokenizer=None,
        processor=None,
        max_length=None,
        *,
        prompt_key="text",
        multimodal_keys=None,
        label_key=None,
        tool_key=None,
        metadata_key="metadata",
        seed=42,
        apply_chat_template=False,
        apply_chat_template_kwargs=None,
    ):
        samples = []
        paths = [path] if isinstance(path, str) else path
        for row in itertools.chain.from_iterable(map(read_file, paths)):
            prompt = row.get(prompt_key)
            if isinstance(prompt, str) and (apply_chat_template or multimodal_keys is not None):
                prompt = [{"role": "user", "content": prompt}]
            if multimodal_keys and isinstance(prompt, list):
                prompt = _with_media(prompt, row, multimodal_keys)
            metadata = row.get(metadata_key) or {}
            tools = row.get(tool_key) if tool_key is not None else None
            if tools is not None:
                tools = json.loads(tools) if isinstance(tools, str) else list(tools)
                metadata["tools"] = tools
            media = None
            if processor is not None:
                from slime.utils.processing_utils import process_vision_info

                media = process_vision_info(prompt, processor)
            if apply_chat_template:
                prompt = tokenizer.apply_chat_template(
                    prompt, tools=tools, tokenize=False, add_generation_prompt=True, **(apply_chat_template_kwargs or {})
                )
            label = row[label_key] if label_key is not None else None
            samples.append(Sample(prompt=prompt, label=label, metadata=metadata, multimodal_inputs=media))
        self.origin_samples = filter_long_prompt(samples, tokenizer, processor, max_length)
        self.samples = self.origin_samples
        self.seed = seed
        self.epoch_id = -1
        self._next = 0

    def shuffle(self, new_epoch_id):
        """The order of an epoch depends on the seed and its number alone."""
        if self.epoch_id == new_epoch_id:
            return
        order = list(range(len(self.origin_samples)))
        random.Random(self.seed + new_epoch_id).shuffle(order)
        self.samples = [self.origin_samples[i] for i in order]
        self.epoch_id = new_epoch_id

    def sample(self, count):
        """Copies of the next `count`, in the order of the epoch; behind the last one comes the first."""
        if not self.samples:
            return []
        begin, self._next = self._next, (self._next + count) % len(self.samples)
        return [copy.deepcopy(self.samples[(begin + i) % len(self.samples)]) for i in range(count)]

    def __getitem__(self, index):
        return self.samples[index]

    def __len__(self):
        return len(self.samples)

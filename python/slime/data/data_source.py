"""Where prompts come from: a data set, and a buffer of groups that wait before it.

In a run the program has its own data set and buffer, and a rollout function's `data_source` speaks to those. The
classes here are for data sources of one's own, which take their place (`--data-source-path`).
"""

import abc
import copy
import inspect
import json
import logging
import os
from typing import List

from slime.utils.data import Dataset
from slime.utils.misc import load_function
from slime.utils.staleness import oldest_version
from slime.utils.types import Sample

__all__ = ["DataSource", "RolloutDataSource", "RolloutDataSourceWithBuffer", "pop_first", "pop_oldest"]

logger = logging.getLogger(__name__)


class DataSource(abc.ABC):
    """Groups of samples, and a place to give some back to."""

    @abc.abstractmethod
    def get_samples(self, num_samples: int) -> List[List[Sample]]:
        """`num_samples` groups, lists of samples with nothing generated or with a part of it."""

    @abc.abstractmethod
    def add_samples(self, samples: List[List[Sample]]):
        """Takes groups back."""

    @abc.abstractmethod
    def save(self, rollout_id):
        """Writes where it is, beside a checkpoint."""

    @abc.abstractmethod
    def load(self, rollout_id=None):
        """Goes on from what `save` wrote."""

    @abc.abstractmethod
    def __len__(self):
        """Rows."""


class RolloutDataSource(DataSource):
    """The rows of --prompt-data, epoch after epoch; samples without a prompt when there are none."""

    _STATE = ("sample_offset", "epoch_id", "sample_group_index", "sample_index", "metadata")

    def __init__(self, args):
        self.args = args
        self.epoch_id = 0
        self.sample_group_index = 0
        self.sample_index = 0
        self.sample_offset = 0
        self.metadata = {}
        self.dataset = None
        if args.rollout_global_dataset and args.prompt_data is not None:
            self.dataset = self._read()
            if args.rollout_shuffle:
                self.dataset.shuffle(self.epoch_id)

    def _read(self):
        args = self.args
        tokenizer = processor = None
        if args.apply_chat_template or args.rollout_max_prompt_len is not None or args.multimodal_keys is not None:
            from slime.utils.processing_utils import load_processor, load_tokenizer

            tokenizer = load_tokenizer(args.hf_checkpoint, trust_remote_code=True)
            if args.multimodal_keys is not None:
                processor = load_processor(args.hf_checkpoint, trust_remote_code=True)
        return Dataset(
            args.prompt_data,
            tokenizer=tokenizer,
            processor=processor,
            max_length=args.rollout_max_prompt_len,
            prompt_key=args.input_key,
            multimodal_keys=args.multimodal_keys,
            label_key=args.label_key,
            metadata_key=args.metadata_key,
            tool_key=args.tool_key,
            apply_chat_template=args.apply_chat_template,
            apply_chat_template_kwargs=args.apply_chat_template_kwargs,
            seed=args.rollout_seed,
        )

    def _take_rows(self, count):
        if self.dataset is None:
            return [Sample() for _ in range(count)]
        rows = self.dataset.samples[self.sample_offset : self.sample_offset + count]
        self.sample_offset += len(rows)
        if len(rows) < count:
            self.epoch_id += 1
            if self.args.rollout_shuffle:
                self.dataset.shuffle(self.epoch_id)
            self.sample_offset = count - len(rows)
            rows = rows + self.dataset.samples[: self.sample_offset]
        return rows

    def get_samples(self, num_samples):
        groups = []
        for row in self._take_rows(num_samples):
            group = []
            for _ in range(self.args.n_samples_per_prompt):
                sample = copy.deepcopy(row)
                sample.group_index, sample.index = self.sample_group_index, self.sample_index
                self.sample_index += 1
                group.append(sample)
            self.sample_group_index += 1
            groups.append(group)
        return groups

    def add_samples(self, samples):
        raise RuntimeError(f"{type(self).__name__} takes nothing back; RolloutDataSourceWithBuffer does")

    def state_dict(self):
        """Where it is, as JSON or torch.save takes it; nothing in it is shared."""
        return copy.deepcopy({name: getattr(self, name) for name in self._STATE})

    def load_state_dict(self, state):
        for name in self._STATE:
            setattr(self, name, state.get(name, getattr(self, name)))
        if self.args.rollout_shuffle and self.dataset is not None:
            self.dataset.shuffle(self.epoch_id)

    def _state_file(self, folder, rollout_id):
        return os.path.join(folder, "rollout", f"global_dataset_state_dict_{rollout_id}.json")

    def save(self, rollout_id):
        if not self.args.rollout_global_dataset or not self.args.save:
            return
        path = self._state_file(self.args.save, rollout_id)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".partial", "w", encoding="utf-8") as file:
            json.dump(_to_json(self.state_dict()), file)
        os.replace(path + ".partial", path)

    def load(self, rollout_id=None):
        if not self.args.rollout_global_dataset or self.args.load is None:
            return
        path = self._state_file(self.args.load, rollout_id)
        state = self._read_state(path)
        if state is None:
            logger.info("%s is not there; the data set begins at its first row", path)
            return
        self.load_state_dict(_from_json(state))

    def _read_state(self, path):
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                return json.load(file)
        pickled = path[: -len(".json")] + ".pt"  # of the original; torch reads it without running what is in it
        if os.path.exists(pickled):
            import torch

            return torch.load(pickled, weights_only=True)
        return None

    def __len__(self):
        return 0 if self.dataset is None else len(self.dataset)


class RolloutDataSourceWithBuffer(RolloutDataSource):
    """Groups that were given back come first, in the order of --buffer-filter-path, else of the class's own method
    `buffer_filter(args, rollout_id, buffer, num_samples)`, else oldest first."""

    def __init__(self, args):
        super().__init__(args)
        self.buffer = []
        path = self.args.buffer_filter_path
        if path is not None:
            self.buffer_filter = load_function(path)
        elif not hasattr(type(self), "buffer_filter"):
            by_age = getattr(self.args, "buffer_sort_by_staleness", False)
            self.buffer_filter = pop_oldest if by_age else pop_first

    def state_dict(self):
        return {**super().state_dict(), "buffer": copy.deepcopy(self.buffer)}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.buffer = list(state.get("buffer", self.buffer))

    def _get_samples_from_buffer(self, num_samples):
        if not self.buffer or num_samples <= 0:
            return []
        return call_buffer_filter(self.buffer_filter, self.args, self.buffer, num_samples)

    def get_samples(self, num_samples):
        groups = self._get_samples_from_buffer(num_samples)
        missing = num_samples - len(groups)
        return groups + super().get_samples(missing) if missing > 0 else groups

    def add_samples(self, samples):
        for group in samples or []:
            if not isinstance(group, list):
                raise TypeError(f"a group is a list of samples, not {type(group).__name__}")
            if len(group) != self.args.n_samples_per_prompt:
                raise ValueError(f"a group of {len(group)} samples; there are {self.args.n_samples_per_prompt} to a prompt")
        self.buffer.extend(samples or [])

    def update_metadata(self, metadata):
        self.metadata.update(metadata)

    def get_metadata(self):
        return self.metadata

    def get_buffer_length(self):
        return len(self.buffer)


def call_buffer_filter(function, args, buffer, num_samples):
    """What it takes out of the buffer. It may be written as a choice alone, (args, buffer, num_samples): what it returns is
    then taken out for it."""
    parameters = [
        each for each in inspect.signature(function).parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.default is each.empty
    ]  # fmt: skip
    if len(parameters) != 3:
        return function(args, None, buffer, num_samples)
    chosen = list(function(args, buffer, num_samples))
    taken = {id(group) for group in chosen}
    buffer[:] = [group for group in buffer if id(group) not in taken]
    return chosen


def pop_oldest(args, rollout_id, buffer: List[List[Sample]], num_samples: int):
    """Groups whose oldest token has the oldest weights; of equal age the first, without a version last."""

    def age(group):
        version = oldest_version(group)
        return float("inf") if version is None else version

    buffer.sort(key=age)
    return pop_first(args, rollout_id, buffer, num_samples)


def _to_json(state):
    """Samples of the buffer as records."""
    if "buffer" not in state:
        return state
    return {**state, "buffer": [[_record(sample) for sample in group] for group in state["buffer"]]}


def _record(sample):
    record = sample.to_dict()
    for name, value in record.items():
        if hasattr(value, "tolist"):
            record[name] = value.tolist()
    return record


def _from_json(state):
    groups = state.get("buffer")
    if not groups or not isinstance(groups[0][0], dict):
        return state
    return {**state, "buffer": [[Sample.from_dict(record) for record in group] for group in groups]}


def pop_first(args, rollout_id, buffer, num_samples):
    """The oldest groups; they leave the buffer."""
    groups = buffer[:num_samples]
    del buffer[:num_samples]
    return groups

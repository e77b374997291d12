"""Samples on the wire: a JSON object of the fields that are not at their default, long lists as columns.

What user code set beside the fields travels as "extra", as far as JSON can say it.
"""

import copy
import logging
import math
from array import array

from slime.host.frames import encode_json
from slime.utils.int_arrays import IntTable, flat_int32
from slime.utils.types import Sample

__all__ = ["to_record", "from_record", "groups_to_records", "groups_from_records", "changes"]

logger = logging.getLogger(__name__)

SHORT = 16  # lists up to this length stand in the head
_ARRAYS = {
    "tokens": "i",
    "loss_mask": "B",
    "rollout_log_probs": "f",
    "teacher_log_probs": "f",
    "rollout_top_p_token_ids": "i",
    "rollout_top_p_token_offsets": "i",
}
_PLAIN_DEFAULTS = {
    name: Sample.__dataclass_fields__[name].default
    for name in Sample.__dataclass_fields__
    if name
    not in ("tokens", "apply_chat_template_kwargs", "weight_versions", "metadata", "spec_info", "prefix_cache_info")
}
_FIELDS = frozenset(Sample.__dataclass_fields__)
_LISTS_AND_DICTS = ("weight_versions", "apply_chat_template_kwargs", "metadata")
_COUNTS = {"spec_info": Sample.SpecInfo, "prefix_cache_info": Sample.PrefixCacheInfo}
_STATUS = {status.value: status for status in Sample.Status}
_told = set()


def _numbers(value, columns):
    return columns[value["$column"]] if isinstance(value, dict) else value


def from_record(record, columns):
    """A Sample of its own: nothing in it is shared with `record`, whose plain values are taken as they are."""
    sample = Sample.__new__(Sample)
    fields = sample.__dict__
    fields.update(_PLAIN_DEFAULTS)
    fields["tokens"] = []
    fields["apply_chat_template_kwargs"] = {}
    fields["weight_versions"] = []
    fields["metadata"] = {}
    fields["spec_info"] = Sample.SpecInfo()
    fields["prefix_cache_info"] = Sample.PrefixCacheInfo()
    for name, value in record.items():
        if name in _ARRAYS:
            fields[name] = columns[value["$column"]].tolist() if type(value) is dict else list(value)
        elif name == "status":
            fields[name] = _STATUS[value]
        elif name == "metadata":
            fields[name] = _own(value)
        elif name == "extra":
            fields.update(_own(value))
        elif name == "rollout_routed_experts":
            shape = value["shape"]
            fields[name] = IntTable(flat_int32(list(_numbers(value, columns))), shape[1], shape[2])
        elif name in _COUNTS:
            fields[name] = _COUNTS[name].from_dict(value)
        else:
            fields[name] = value
    return sample


def _own(record):
    """A copy, deep where there is a depth: what a function changes in it must not change the record."""
    if any(isinstance(value, (dict, list)) for value in record.values()):
        return copy.deepcopy(record)
    return dict(record)


def _array_word(name, value, columns):
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    if hasattr(value, "tolist"):
        value = value.tolist()
    try:
        numbers = array(_ARRAYS[name], value)
    except (TypeError, OverflowError, ValueError) as error:
        raise TypeError(f"Sample.{name}: {error}") from None
    # JSON has no NaN: a column has, and the program says which number it is.
    is_speakable = len(numbers) <= SHORT and (_ARRAYS[name] != "f" or all(map(math.isfinite, numbers)))
    return numbers.tolist() if is_speakable else columns.add(numbers)


def _speakable(name, value):
    try:
        encode_json(value)
        return True
    except (TypeError, ValueError) as error:
        if name not in _told:
            _told.add(name)
            logger.warning("Sample.%s does not leave its function: %s", name, error)
        return False


def to_record(sample, columns):
    """Throws TypeError for a field of a wrong type."""
    if not isinstance(sample, Sample):
        raise TypeError(f"a Sample is wanted, this is {type(sample).__name__}")
    record = {}
    for name, value in sample.__dict__.items():
        if name in _ARRAYS:
            if value is not None and len(value):
                record[name] = _array_word(name, value, columns)
            elif value is not None and name != "tokens":
                record[name] = []
        elif name in _PLAIN_DEFAULTS:
            if value is _PLAIN_DEFAULTS[name] or value is None:
                continue
            if name == "status":
                record[name] = Sample.Status(value).value  # some functions set its name
            elif name == "rollout_routed_experts":
                record[name] = _table_word(value, columns)
            elif name in ("multimodal_inputs", "multimodal_train_inputs"):
                if _speakable(name, value):
                    record[name] = value
            elif value != _PLAIN_DEFAULTS[name]:
                record[name] = value
        elif name in _LISTS_AND_DICTS:
            if value:
                record[name] = value
        elif name in _COUNTS:
            if any(value.__dict__.values()):
                record[name] = value.to_dict()
        elif name not in _FIELDS and _speakable(name, value):
            record.setdefault("extra", {})[name] = value
    return record


def _table_word(value, columns):
    shape = list(value.shape) if hasattr(value, "shape") else [len(value), len(value[0]), len(value[0][0])]
    return {**columns.add(flat_int32(value)), "shape": [int(size) for size in shape]}


def groups_from_records(groups, columns):
    """Lists of samples to any depth."""
    return [
        groups_from_records(member, columns) if isinstance(member, list) else from_record(member, columns)
        for member in groups
    ]


def groups_to_records(groups, columns):
    if not isinstance(groups, (list, tuple)):
        raise TypeError(f"a list of samples is wanted, this is {type(groups).__name__}")
    return [
        groups_to_records(member, columns) if isinstance(member, (list, tuple)) else to_record(member, columns)
        for member in groups
    ]


_WATCHED = ("metadata", "train_metadata", "reward", "response", "label", "rollout_id", "remove_sample")


def changes(sample, record, arrays, columns):
    """What a function that returns something else changed in the sample that was made of `record`: a record of those
    fields, empty for most. Tokens and their log-probs are not looked at."""
    fields = sample.__dict__
    changed = {}
    for name in _WATCHED:
        default = {} if name == "metadata" else _PLAIN_DEFAULTS[name]
        if fields[name] != record.get(name, default):
            changed[name] = fields[name]
    status = Sample.Status(fields["status"]).value
    if status != record.get("status", "pending"):
        changed["status"] = status
    mask = fields["loss_mask"]
    if mask is not None and ("loss_mask" not in record or mask != list(_numbers(record["loss_mask"], arrays))):
        changed["loss_mask"] = _array_word("loss_mask", mask, columns)
    if len(fields) > len(_FIELDS):
        extra = {name: value for name, value in fields.items() if name not in _FIELDS and _speakable(name, value)}
        if extra != record.get("extra", {}):
            changed["extra"] = extra
    return changed

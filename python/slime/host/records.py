"""Samples on the wire: a JSON object of the fields that are not at their default, long lists as columns. The fields and
what is special about them are listed in slime.utils.types.Sample alone.

What user code set beside the fields travels as "extra", as far as JSON can say it.
"""

import copy
import logging
import math
from array import array
from dataclasses import MISSING, fields

from slime.host.frames import encode_json
from slime.utils.int_arrays import IntTable, flat_int32
from slime.utils.number_table import NumberTable, flat_numbers
from slime.utils.types import Sample

__all__ = ["to_record", "from_record", "groups_to_records", "groups_from_records", "changes"]

logger = logging.getLogger(__name__)

SHORT = 16  # lists up to this length stand in the head
_FIELDS = {each.name: each for each in fields(Sample)}
_ARRAYS = {name: each.metadata["array"] for name, each in _FIELDS.items() if "array" in each.metadata}
_TABLES = {name: each.metadata["table"] for name, each in _FIELDS.items() if "table" in each.metadata}
_PLAIN_DEFAULTS = {name: each.default for name, each in _FIELDS.items() if each.default is not MISSING}
_MADE = {name: each.default_factory for name, each in _FIELDS.items() if each.default is MISSING}
_LISTS_AND_DICTS = tuple(name for name, make in _MADE.items() if make in (list, dict) and name not in _ARRAYS)
_COUNTS = {name: make for name, make in _MADE.items() if make not in (list, dict)}
_WATCHED = tuple(name for name, each in _FIELDS.items() if "watched" in each.metadata)
_STATUS = {status.value: status for status in Sample.Status}
_told = set()


def _numbers(value, columns):
    return columns[value["$column"]] if isinstance(value, dict) else value


def from_record(record, columns):
    """A Sample of its own: nothing in it is shared with `record`, whose plain values are taken as they are."""
    sample = Sample.__new__(Sample)
    attributes = sample.__dict__
    attributes.update(_PLAIN_DEFAULTS)
    for name, make in _MADE.items():
        attributes[name] = make()
    for name, value in record.items():
        if name in _ARRAYS:
            attributes[name] = columns[value["$column"]].tolist() if type(value) is dict else list(value)
        elif name == "status":
            attributes[name] = _STATUS[value]
        elif name == "metadata":
            attributes[name] = _own(value)
        elif name == "extra":
            attributes.update(_own(value))
        elif name == "rollout_routed_experts":
            shape = value["shape"]
            attributes[name] = IntTable(flat_int32(list(_numbers(value, columns))), shape[1], shape[2])
        elif name in _TABLES:
            rows = record["response_length"]
            numbers = array(_TABLES[name], _numbers(value, columns))
            attributes[name] = NumberTable(numbers, len(numbers) // rows if rows else 0)
        elif name in _COUNTS:
            attributes[name] = _COUNTS[name].from_dict(value)
        else:
            attributes[name] = value
    return sample


def _own(record):
    """A copy, deep where there is a depth: what a function changes in it must not change the record."""
    if any(isinstance(value, (dict, list)) for value in record.values()):
        return copy.deepcopy(record)
    return dict(record)


def _array_word(name, value, columns):
    typecode = _ARRAYS.get(name) or _TABLES[name]
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    if name not in _TABLES and hasattr(value, "tolist"):
        value = value.tolist()
    try:
        numbers = flat_numbers(value, typecode) if name in _TABLES else array(typecode, value)
    except (TypeError, OverflowError, ValueError) as error:
        raise TypeError(f"Sample.{name}: {error}") from None
    # JSON has no NaN: a column has, and the program says which number it is.
    is_speakable = len(numbers) <= SHORT and (typecode != "f" or all(map(math.isfinite, numbers)))
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
        elif name in _TABLES:
            if value is not None and len(value):
                record[name] = _array_word(name, value, columns)
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


def changes(sample, record, arrays, columns):
    """What a function that returns something else changed in the sample that was made of `record`: a record of those
    fields, empty for most. Tokens and their log-probs are not looked at."""
    attributes = sample.__dict__
    changed = {}
    for name in _WATCHED:
        default = _PLAIN_DEFAULTS[name] if name in _PLAIN_DEFAULTS else _MADE[name]()
        if attributes[name] != record.get(name, default):
            changed[name] = attributes[name]
    status = Sample.Status(attributes["status"]).value
    if status != record.get("status", "pending"):
        changed["status"] = status
    mask = attributes["loss_mask"]
    if mask is not None and ("loss_mask" not in record or mask != list(_numbers(record["loss_mask"], arrays))):
        changed["loss_mask"] = _array_word("loss_mask", mask, columns)
    if len(attributes) > len(_FIELDS):
        extra = {name: value for name, value in attributes.items() if name not in _FIELDS and _speakable(name, value)}
        if extra != record.get("extra", {}):
            changed["extra"] = extra
    return changed

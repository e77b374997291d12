"""Integer arrays of an engine's meta_info: base64, bytes, lists, numpy arrays and torch tensors, as array('i')."""

import base64
from array import array

__all__ = ["find_int32", "flat_int32", "IntTable"]


def flat_int32(value):
    """The integers of `value` in order, whatever its shape, as array('i')."""
    if isinstance(value, array) and value.typecode == "i":
        return value
    if isinstance(value, str):
        value = base64.b64decode(value.encode("ascii"))
    if isinstance(value, (bytes, bytearray, memoryview)):
        numbers = array("i")
        numbers.frombytes(bytes(value))
        return numbers
    if isinstance(value, IntTable):
        return value.numbers
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    if hasattr(value, "reshape"):
        value = value.reshape(-1)
    if hasattr(value, "tolist"):
        value = value.tolist()
    return array("i", _flatten(value))


def _flatten(values):
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flatten(value)
        else:
            yield int(value)


def find_int32(record, keys):
    """The first of `keys` that `record` has, as array('i'); None without one, or when it is null."""
    for key in (keys,) if isinstance(keys, str) else keys:
        if key in record:
            return None if record[key] is None else flat_int32(record[key])
    return None


class IntTable:
    """Integers of a fixed number of layers and choices per row: routed experts [rows, layers, topk] without torch."""

    def __init__(self, numbers, layers, topk):
        self.numbers = numbers
        self.layers = layers
        self.topk = topk

    @property
    def shape(self):
        width = self.layers * self.topk
        return (len(self.numbers) // width if width else 0, self.layers, self.topk)

    def __len__(self):
        return self.shape[0]

    def __eq__(self, other):
        return isinstance(other, IntTable) and self.shape == other.shape and self.numbers == other.numbers

    def __getitem__(self, rows):
        if isinstance(rows, slice):
            begin, end, step = rows.indices(len(self))
            width = self.layers * self.topk
            if step != 1:
                raise ValueError("a table of integers has slices of step 1")
            return IntTable(self.numbers[begin * width : max(begin, end) * width], self.layers, self.topk)
        return self.tolist()[rows]

    def tolist(self):
        numbers = iter(self.numbers)
        return [[[next(numbers) for _ in range(self.topk)] for _ in range(self.layers)] for _ in range(len(self))]

    def __array__(self, dtype=None, copy=None):
        import numpy

        return numpy.array(self.numbers, dtype=dtype or numpy.int32).reshape(self.shape)

    def to_torch(self):
        import torch

        return torch.tensor(self.numbers, dtype=torch.int32).reshape(self.shape)

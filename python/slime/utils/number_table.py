"""Numbers of a fixed count per row, without torch: what [response_length, K] fields of a Sample are made of."""

import base64
from array import array

__all__ = ["NumberTable", "flat_numbers"]


def flat_numbers(value, typecode):
    """The numbers of `value` in order, whatever its shape, as an array of this type: base64 or bytes of little-endian
    numbers, lists of lists, arrays, numpy arrays and torch tensors."""
    if isinstance(value, array) and value.typecode == typecode:
        return value
    if isinstance(value, str):
        value = base64.b64decode(value.encode("ascii"), validate=True)
    if isinstance(value, (bytes, bytearray, memoryview)):
        numbers = array(typecode)
        numbers.frombytes(bytes(value))
        return numbers
    if isinstance(value, NumberTable):
        return flat_numbers(value.numbers, typecode)
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    if hasattr(value, "reshape"):
        value = value.reshape(-1)
    if hasattr(value, "tolist"):
        value = value.tolist()
    return array(typecode, _flatten(value))


def _flatten(values):
    for value in values:
        if isinstance(value, (list, tuple)) or hasattr(value, "tolist") and getattr(value, "shape", ()) != ():
            yield from _flatten(value)
        else:
            yield value


class NumberTable:
    """`numbers`, an array('i') or array('f'), as rows of `width`."""

    def __init__(self, numbers, width):
        if width < 0 or (len(numbers) % width if width else len(numbers)):
            raise ValueError(f"{len(numbers)} numbers are no rows of {width}")
        self.numbers = numbers
        self.width = width

    @property
    def shape(self):
        return (len(self), self.width)

    def __len__(self):
        return len(self.numbers) // self.width if self.width else 0

    def __eq__(self, other):
        return isinstance(other, NumberTable) and self.shape == other.shape and self.numbers == other.numbers

    def __getitem__(self, rows):
        if isinstance(rows, slice):
            begin, end, step = rows.indices(len(self))
            if step != 1:
                raise ValueError("a table of numbers has slices of step 1")
            return NumberTable(self.numbers[begin * self.width : max(begin, end) * self.width], self.width)
        index = range(len(self))[rows]
        return self.numbers[index * self.width : (index + 1) * self.width].tolist()

    def __repr__(self):
        return f"NumberTable({self.tolist()!r})"

    def tolist(self):
        return [self[row] for row in range(len(self))]

    def __array__(self, dtype=None, copy=None):
        import numpy

        kinds = {"i": numpy.int32, "f": numpy.float32}
        return numpy.array(self.numbers, dtype=dtype or kinds[self.numbers.typecode]).reshape(self.shape)

    def to_torch(self):
        import torch

        kinds = {"i": torch.int32, "f": torch.float32}
        return torch.tensor(self.numbers, dtype=kinds[self.numbers.typecode]).reshape(self.shape)

"""torch.save files, read without torch and without running anything that they name.

A pickle names functions and calls them. Here every name becomes an inert `Record`, but for a handful of plain containers, so a
file can do no more than be large.
"""

import io
import mmap
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path

MOST_PICKLE_BYTES = 2 << 30
STORAGES = {
    "FloatStorage": "F32", "DoubleStorage": "F64", "HalfStorage": "F16", "BFloat16Storage": "BF16", "LongStorage": "I64",
    "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8", "BoolStorage": "BOOL",
}  # fmt: skip
DTYPES = {
    "float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16",
    "int8": "I8", "uint8": "U8", "bool": "BOOL", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float": "F32",
    "half": "F16", "double": "F64", "long": "I64", "int": "I32",
}  # fmt: skip
SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}


class BadFile(ValueError):
    """A file that is not what it should be; the text is for people."""


class Record:
    """An object of a class that is not imported: what it was called with, and the state it was given."""

    module = name = ""

    def __new__(cls, *args, **kwargs):
        record = object.__new__(cls)
        record.args, record.kwargs, record.state = args, kwargs, None
        return record

    def __init__(self, *args, **kwargs):
        pass

    def __setstate__(self, state):
        self.state = state

    def __setitem__(self, key, value):  # of a class that is a dict
        if not isinstance(self.state, dict):
            self.state = {}
        self.state[key] = value

    def append(self, value):  # of a class that is a list
        if not isinstance(self.state, list):
            self.state = []
        self.state.append(value)

    def extend(self, values):
        for value in values:
            self.append(value)

    def get(self, name, default=None):
        return self.state.get(name, default) if isinstance(self.state, dict) else default


@dataclass
class Tensor:
    """Numbers of a tensor: `data` holds exactly its elements, row by row."""

    dtype: str  # as safetensors calls it
    shape: tuple
    data: memoryview


def _encode(text, encoding):
    if encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise BadFile(f"a pickle with text in {encoding!r}")
    return text.encode(encoding)


PLAIN = {
    ("collections", "OrderedDict"): dict,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex,
    ("builtins", "dict"): dict,
    ("builtins", "list"): list,
    ("builtins", "tuple"): tuple,
    ("__builtin__", "set"): set,
    ("__builtin__", "dict"): dict,
    ("torch", "Size"): tuple,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, storage):
        super().__init__(file)
        self._storage, self._classes = storage, {}

    def find_class(self, module, name):
        plain = PLAIN.get((module, name))
        if plain is not None:
            return plain
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_tensor"):
            return lambda storage, offset, size, stride, *rest: _tensor(storage, storage.dtype, offset, size, stride)
        if module == "torch._utils" and name == "_rebuild_tensor_v3":
            return lambda storage, offset, size, stride, _grad, _hooks, dtype, *rest: _tensor(
                storage, DTYPES[dtype.name], offset, size, stride
            )
        if module == "torch._utils" and name == "_rebuild_parameter":
            return lambda data, *rest: data
        key = module, name
        if key not in self._classes:
            self._classes[key] = type("Record", (Record,), {"module": module, "name": name})
        return self._classes[key]

    def persistent_load(self, pid):
        if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage"):
            raise BadFile("a pickle with a reference that is no storage")
        kind = pid[1]
        return _Storage(STORAGES.get(getattr(kind, "name", ""), "U8"), self._storage(str(pid[2])))


@dataclass
class _Storage:
    dtype: str
    data: memoryview


def _tensor(storage, dtype, offset, size, stride):
    shape, item = tuple(size), SIZES[dtype]
    count, expected = 1, []
    for length in reversed(shape):
        expected.insert(0, count)
        count *= length
    is_dense = all(length == 1 or have == want for length, have, want in zip(shape, stride, expected))
    if min((*shape, offset, 0)) < 0 or (offset + count) * item > len(storage.data) and is_dense:
        raise BadFile("a tensor that reaches beyond its storage")
    if is_dense:
        return Tensor(dtype, shape, storage.data[offset * item : (offset + count) * item])
    if count > 1 << 28:
        raise BadFile("a large tensor that is not stored row by row")
    data = bytearray()
    index = [0] * len(shape)
    for _ in range(count):
        at = (offset + sum(i * step for i, step in zip(index, stride))) * item
        if not 0 <= at <= len(storage.data) - item:
            raise BadFile("a tensor that reaches beyond its storage")
        data += storage.data[at : at + item]
        for axis in reversed(range(len(shape))):
            index[axis] += 1
            if index[axis] < shape[axis]:
                break
            index[axis] = 0
    return Tensor(dtype, shape, memoryview(bytes(data)))


class _Window(io.RawIOBase):
    """A part of a file in memory, as zipfile wants it."""

    def __init__(self, view):
        self._view, self._at = view, 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=0):
        self._at = max(0, offset + (0, self._at, len(self._view))[whence])
        return self._at

    def tell(self):
        return self._at

    def readinto(self, into):
        part = self._view[self._at : self._at + len(into)]
        into[: len(part)] = part
        self._at += len(part)
        return len(part)


def load_bytes(view, where):
    """The object of a torch.save file in memory; its tensors are views into it. Throws BadFile."""
    view = memoryview(view)
    if bytes(view[:2]) != b"PK":
        raise BadFile(f"{where}: is no file of torch.save in its zip form (torch 1.6 or newer)")
    try:
        archive = zipfile.ZipFile(_Window(view))
        entries = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        info = entries.get("data.pkl")
        if info is None or info.file_size > MOST_PICKLE_BYTES:
            raise BadFile(f"{where}: has no data.pkl, or one that is too large")
        order = entries.get("byteorder")
        if order is not None and archive.read(order).strip() != b"little":
            raise BadFile(f"{where}: was written on a machine with another byte order")

        def storage(key):
            entry = entries.get(f"data/{key}")
            if entry is None or entry.compress_type != zipfile.ZIP_STORED:
                raise BadFile(f"{where}: storage {key} is missing")
            head = bytes(view[entry.header_offset : entry.header_offset + 30])
            begin = entry.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
            return view[begin : begin + entry.file_size]

        return _Unpickler(io.BytesIO(archive.read(info)), storage).load()
    except BadFile:
        raise
    except Exception as error:  # whatever its bytes are
        raise BadFile(f"{where}: cannot be read: {type(error).__name__}: {error}") from None


def load_pickle(path):
    """The object of a bare pickle, such as .metadata of torch.distributed.checkpoint. Throws BadFile."""
    if Path(path).stat().st_size > MOST_PICKLE_BYTES:
        raise BadFile(f"{path}: is larger than {MOST_PICKLE_BYTES >> 30} GiB")

    def no_storage(key):
        raise BadFile(f"{path}: refers to the storage {key}")

    try:
        with open(path, "rb") as file:
            return _Unpickler(file, no_storage).load()
    except BadFile:
        raise
    except Exception as error:
        raise BadFile(f"{path}: cannot be read: {type(error).__name__}: {error}") from None


def map_file(path):
    """The bytes of a file as a memoryview, read as they are needed."""
    with open(path, "rb") as file:
        if not Path(path).stat().st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def load(path):
    return load_bytes(map_file(path), str(path))

"""Directories of torch.distributed.checkpoint, which Megatron calls torch_dist: their tensors, by name, whole or a part of them."""

from dataclasses import dataclass, field
from pathlib import Path

from slime.checkpoints import torch_pickle
from slime.checkpoints.torch_pickle import BadFile, DTYPES, SIZES, Record


@dataclass
class _Piece:
    offsets: tuple
    sizes: tuple
    file: str
    begin: int
    length: int


@dataclass
class Stored:
    """A tensor of the checkpoint."""

    dtype: str
    shape: tuple
    pieces: list = field(default_factory=list)


def newest_directory(folder):
    """The directory with .metadata: `folder`, or the iteration that its tracker file names. Throws BadFile."""
    folder = Path(folder)
    if (folder / ".metadata").exists():
        return folder
    tracker = folder / "latest_checkpointed_iteration.txt"
    if tracker.exists():
        word = tracker.read_text().strip()
        inner = folder / (word if word == "release" else f"iter_{int(word):07d}" if word.isdigit() else "-")
        if (inner / ".metadata").exists():
            return inner
        raise BadFile(f"{tracker}: names {word!r}, and {inner} has no .metadata")
    inner = sorted(each.parent for each in folder.glob("*/.metadata"))
    if len(inner) == 1:
        return inner[0]
    raise BadFile(f"{folder}: has no .metadata: it is no torch_dist checkpoint" + (f"; give one of {', '.join(map(str, inner))}" if inner else ""))


class TorchDist:
    """One checkpoint. `tensors`: name -> Stored."""

    def __init__(self, folder):
        self.folder = newest_directory(folder)
        metadata = torch_pickle.load_pickle(self.folder / ".metadata")
        if not isinstance(metadata, Record) or not isinstance(metadata.get("state_dict_metadata"), dict):
            raise BadFile(f"{self.folder}/.metadata: is not one of torch.distributed.checkpoint")
        self._files, self.tensors = {}, {}
        for name, what in metadata.get("state_dict_metadata").items():
            if what.name == "TensorStorageMetadata":
                self.tensors[name] = Stored(_dtype_of(what.get("properties"), name), tuple(what.get("size")))
        sizes = {
            (name, tuple(chunk.get("offsets"))): tuple(chunk.get("sizes"))
            for name, what in metadata.get("state_dict_metadata").items()
            if what.name == "TensorStorageMetadata"
            for chunk in what.get("chunks")
        }
        for index, info in metadata.get("storage_data").items():
            name = index.get("fqn")
            if name not in self.tensors:
                continue
            offsets = tuple(index.get("offset") or (0,) * len(self.tensors[name].shape))
            if (name, offsets) not in sizes:
                raise BadFile(f"{self.folder}: {name}: a piece at {offsets} that .metadata does not list")
            file = info.get("relative_path")
            if "/" in file or file.startswith("."):
                raise BadFile(f"{self.folder}: .metadata names a file outside: {file!r}")
            piece = _Piece(offsets, sizes[name, offsets], file, info.get("offset"), info.get("length"))
            self.tensors[name].pieces.append(piece)

    def read(self, name, prefix=()):
        """The bytes of the tensor, or of what is under the indices `prefix` of its first axes."""
        stored = self.tensors[name]
        shape, item, at = stored.shape[len(prefix) :], SIZES[stored.dtype], len(prefix)
        result, covered = bytearray(_count(shape) * item), 0
        for piece in stored.pieces:
            if any(not begin <= index < begin + size for index, begin, size in zip(prefix, piece.offsets, piece.sizes)):
                continue
            data = self._data_of(piece, stored, name)
            skip = 0
            for index, begin, size in zip(prefix, piece.offsets, piece.sizes):
                skip = skip * size + index - begin
            inner = _count(piece.sizes[at:])
            _place(result, shape, piece.offsets[at:], piece.sizes[at:], data[skip * inner * item : (skip + 1) * inner * item], item)
            covered += inner
        if covered != _count(shape):
            raise BadFile(f"{self.folder}: {name}: {covered} of {_count(shape)} numbers are there")
        return result

    def _data_of(self, piece, stored, name):
        if piece.file not in self._files:
            path = self.folder / piece.file
            if not path.exists():
                raise BadFile(f"{path}: is missing; .metadata names it")
            self._files[piece.file] = torch_pickle.map_file(path)
        view = self._files[piece.file][piece.begin : piece.begin + piece.length]
        tensor = torch_pickle.load_bytes(view, f"{self.folder / piece.file}: {name}")
        if not isinstance(tensor, torch_pickle.Tensor) or tensor.dtype != stored.dtype or _count(tensor.shape) != _count(piece.sizes):
            raise BadFile(f"{self.folder / piece.file}: {name}: is not the piece that .metadata says")
        return tensor.data

    def common(self):
        """What Megatron keeps beside the tensors (its arguments, the iteration), or {}."""
        path = self.folder / "common.pt"
        return torch_pickle.load(path) if path.exists() else {}


def _dtype_of(properties, name):
    state = properties.state if isinstance(properties, Record) else None
    dtype = state[0] if isinstance(state, tuple) else (state or {}).get("dtype")
    if getattr(dtype, "name", None) not in DTYPES:
        raise BadFile(f"{name}: a dtype that is not known: {getattr(dtype, 'name', dtype)!r}")
    return DTYPES[dtype.name]


def _count(shape):
    count = 1
    for length in shape:
        count *= length
    return count


def _place(result, shape, offsets, sizes, data, item):
    """Copies a box into the tensor, in runs that lie together in both."""
    axis = len(shape)
    while axis > 0 and sizes[axis - 1] == shape[axis - 1]:
        axis -= 1
    run = _count(sizes[max(axis - 1, 0) :]) if sizes else 1
    outer = sizes[: max(axis - 1, 0)]
    index = [0] * len(outer)
    for number in range(_count(outer)):
        at = 0
        for i, length in enumerate(shape):
            at = at * length + (offsets[i] + (index[i] if i < len(index) else 0))
        result[at * item : (at + run) * item] = data[number * run * item : (number + 1) * run * item]
        for i in reversed(range(len(index))):
            index[i] += 1
            if index[i] < outer[i]:
                break
            index[i] = 0

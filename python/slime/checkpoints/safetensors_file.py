"""Model directories in safetensors: their tensors by name, and new ones written tensor by tensor."""

import json
from pathlib import Path

from slime.checkpoints.torch_pickle import BadFile, SIZES, map_file

MOST_HEADER_BYTES = 100 << 20


class ModelDirectory:
    """`tensors`: name -> (dtype, shape, memoryview)."""

    def __init__(self, folder):
        self.folder, self.tensors = Path(folder), {}
        for path in sorted(self.folder.glob("*.safetensors")):
            view = map_file(path)
            length = int.from_bytes(bytes(view[:8]), "little")
            if length > min(MOST_HEADER_BYTES, len(view)):
                raise BadFile(f"{path}: is no safetensors file")
            for name, entry in json.loads(bytes(view[8 : 8 + length])).items():
                if name == "__metadata__":
                    continue
                begin, end = entry["data_offsets"]
                self.tensors[name] = (entry["dtype"], tuple(entry["shape"]), view[8 + length + begin : 8 + length + end])


def write_model(folder, tensors, read, chunk_bytes):
    """Writes model-....safetensors and their index. `tensors`: (name, dtype, shape) in order; `read(name)`: its bytes."""

    def size(dtype, shape):
        count = SIZES[dtype]
        for length in shape:
            count *= length
        return count

    files, total = [[]], 0
    for name, dtype, shape in tensors:
        bytes_ = size(dtype, shape)
        if files[-1] and sum(each[3] for each in files[-1]) + bytes_ > chunk_bytes:
            files.append([])
        files[-1].append((name, dtype, shape, bytes_))
        total += bytes_
    weight_map = {}
    for number, content in enumerate(files, 1):
        file_name = "model.safetensors" if len(files) == 1 else f"model-{number:05d}-of-{len(files):05d}.safetensors"
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for name, dtype, shape, bytes_ in content:
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + bytes_]}
            at += bytes_
            weight_map[name] = file_name
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(Path(folder) / file_name, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name, _dtype, _shape, bytes_ in content:
                data = read(name)
                if len(data) != bytes_:
                    raise BadFile(f"{name}: {len(data)} bytes instead of {bytes_}")
                file.write(data)
    if len(files) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (Path(folder) / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))

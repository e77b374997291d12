"""The samples of a rollout in a file: what --save-debug-rollout-data writes, JSON lines with a sample each.

    with RolloutArchive("dump/rollout_7.jsonl") as archive:
        samples = archive.load_samples(sample_key="sample:12")
"""

import json
from pathlib import Path

from slime.utils.types import Sample

__all__ = ["RolloutArchive"]

_STATUSES = {status.value for status in Sample.Status}


def _record(line, where):
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where}: no JSON: {error}") from None
    if isinstance(record, dict) and record.get("format") == "slime.straw-debug" and "manifest" in record:
        raise ValueError(
            f"{where}: this is a descriptor of the package straw-queue, whose samples lie in its pool ({record.get('root')}): "
            "export_pt() of THUDM/slime's RolloutArchive makes a .pt file of it, which --load-debug-rollout-data reads"
        )
    return record


class RolloutArchive:
    """Read when it is made. `root`, a pool's place in slime 0.4, is not needed."""

    def __init__(self, path, *, root=None):
        self.path = Path(path)
        self.index = {"path": str(path)}
        self._samples = []
        with open(self.path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    self._take(_record(line, f"{path}:{number}"), f"{path}:{number}")

    def _take(self, record, where):
        if not isinstance(record, dict):
            raise ValueError(f"{where}: a sample is a record, not {type(record).__name__}")
        if "tokens" not in record and "status" not in record:  # the head of a file
            self.index.update(record)
            return
        if record.get("status") not in _STATUSES:
            raise ValueError(f"{where}: status is {record.get('status')!r}; one of {', '.join(sorted(_STATUSES))}")
        own = record.pop("user_fields", None) or {}
        extra = own.pop("extra", None) or {}
        self._samples.append(Sample.from_dict({**record, **own, **extra}))

    @classmethod
    def save(cls, path, samples, *, rollout_id, evaluation=False, args=None):
        """Writes the samples; throws FileExistsError for a file that is there."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            for sample in samples:
                record = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in sample.to_dict().items()}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def keys(self):
        """[(sample key, None)] in the order of the file; a sample without an index has its place as key."""
        return [(self._key(i, sample), None) for i, sample in enumerate(self._samples)]

    @staticmethod
    def _key(place, sample):
        return f"position:{place}" if sample.index is None else f"sample:{sample.index}"

    def load_samples(self, *, sample_key=None, task_key=None):
        """All, or those of a key; throws KeyError when none has it. There are no task keys here."""
        if task_key is not None:
            raise KeyError(task_key)
        found = [sample for i, sample in enumerate(self._samples) if sample_key in (None, self._key(i, sample))]
        if sample_key is not None and not found:
            raise KeyError(sample_key)
        return found

    def export_pt(self, path):
        """Writes {"rollout_id", "samples"} as torch.save does, which THUDM/slime reads."""
        import torch

        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        samples = [sample.to_dict() for sample in self._samples]
        torch.save({"rollout_id": self.index.get("rollout_id"), "samples": samples}, path)

    def release(self):
        """Nothing: the file is all there is."""

    def close(self):
        """Nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.close()

"""The metrics of a run, from its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["read_metrics"]


def read_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """One record a step; of two rows with the same number the later one counts."""
    records: dict[int, dict[str, Any]] = {}
    try:
        lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        lines = []
    for line in lines:
        try:
            row = json.loads(line)
            records.setdefault(row["step"], {}).update(row)
        except (ValueError, KeyError):
            continue  # the last line may be half written
    return [records[step] for step in sorted(records)]

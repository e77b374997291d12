#!/usr/bin/env python3
"""What a run's kernels are worth, on shapes that training never measured, as a table.

    PYTHONPATH=python:. python3 examples/kernel_agent/table.py RUN_DIR

Of each operation: the kernel with which most samples of the last ten steps ended.
"""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

from examples.kernel_agent.measure import TRAINING_SHAPE, measure_shapes
from examples.kernel_agent.operations import OPERATIONS

HELD_OUT = [(64, 64, 64), (33, 129, 47), (128, 96, 200), (250, 40, 90)]  # n, m, k
WORK = 100 * 72 * 88 * 80  # multiplications of a run


def last_kernels(run_dir):
    counts = {operation: Counter() for operation in OPERATIONS}
    for path in sorted((run_dir / "rollouts").glob("step_*.jsonl"))[-10:]:
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:  # texts may have other line breaks
            metadata = json.loads(line)["metadata"]
            if metadata["tries"]:
                counts[metadata["operation"]][metadata["tries"][-1]["kernel"]] += 1
    return {operation: count.most_common(1)[0] + (sum(count.values()),) for operation, count in counts.items() if count}


async def main(run_dir):
    kernels = last_kernels(run_dir)
    shapes = [TRAINING_SHAPE, *HELD_OUT]
    print("| operation | " + " | ".join("{}x{}x{}".format(*shape) for shape in shapes) + " |")
    print("| --- " * (len(shapes) + 1) + "|")
    for operation, (body, _, _) in kernels.items():
        runs = [(shape, max(1, WORK // (shape[0] * shape[1] * shape[2]))) for shape in shapes]
        results = await measure_shapes(operation, body, runs, rounds=5)
        found = [f"{result['speedup']:.1f}" if result["speedup"] else result["said"] for result in results]
        print(f"| `{operation}` | " + " | ".join(found) + " |")
    for operation, (body, count, total) in kernels.items():
        print(f"\n{operation}, {count} of {total} samples:\n\n{body}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(main(Path(sys.argv[1])))

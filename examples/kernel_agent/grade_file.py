"""Grades one file by hand: python3 -m examples.kernel_agent.grade_file TASK FILE.cpp|FILE.py [--gpu N|interpreter] [--json]"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from examples.kernel_agent import tasks
from examples.kernel_agent.grade import GraderError, close, grade


async def judged(task, file, gpu):
    backend = {".cpp": "cpp", ".py": "triton"}.get(file.suffix)
    if backend is None:
        raise GraderError(f"{file}: should end with .cpp or .py")
    try:
        return await grade(task, file.read_text(encoding="utf-8"), backend, gpu=gpu)
    finally:
        await close()


def main():
    parser = argparse.ArgumentParser(description="Grades an answer to a task of examples/kernel_agent/tasks.")
    parser.add_argument("task")
    parser.add_argument("file", type=Path)
    parser.add_argument("--gpu", help="N of /dev/nvidiaN, or interpreter: Triton's, on the CPU, which times nothing")
    parser.add_argument("--json", action="store_true", help="the verdict as one JSON line")
    words = parser.parse_args()
    gpu = int(words.gpu) if words.gpu and words.gpu.isdigit() else words.gpu
    try:
        verdict = asyncio.run(judged(tasks.find(words.task), words.file, gpu))
    except (GraderError, KeyError, OSError) as error:
        sys.exit(f"grade_file: {error}")
    print(json.dumps(verdict.as_dict()) if words.json else f"{verdict.feedback}\nreward {verdict.reward:.2f}")


if __name__ == "__main__":
    main()

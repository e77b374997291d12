"""Grades one file by hand: python3 -m examples.kernel_agent.grade_file TASK FILE.cpp|FILE.py [--gpu N|interpreter] [--json] [--repeat N]"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from examples.kernel_agent import tasks
from examples.kernel_agent.grade import GraderError, close, grade


async def judged(task, file, gpu, repeat):
    """The verdict, and how long each grading took: the first one starts what all share."""
    backend = {".cpp": "cpp", ".py": "triton"}.get(file.suffix)
    if backend is None:
        raise GraderError(f"{file}: should end with .cpp or .py")
    seconds = []
    try:
        for _ in range(repeat):
            begin = time.perf_counter()
            verdict = await grade(task, file.read_text(encoding="utf-8"), backend, gpu=gpu)
            seconds.append(time.perf_counter() - begin)
        return verdict, seconds
    finally:
        await close()


def main():
    parser = argparse.ArgumentParser(description="Grades an answer to a task of examples/kernel_agent/tasks.")
    parser.add_argument("task")
    parser.add_argument("file", type=Path)
    parser.add_argument("--gpu", help="N of /dev/nvidiaN, or interpreter: Triton's, on the CPU, which times nothing")
    parser.add_argument("--json", action="store_true", help="the verdict as one JSON line")
    parser.add_argument("--repeat", type=int, default=1, help="grade it so many times, and say how long each took")
    words = parser.parse_args()
    if words.repeat < 1:
        parser.error("--repeat: should be at least 1")
    gpu = int(words.gpu) if words.gpu and words.gpu.isdigit() else words.gpu
    try:
        verdict, seconds = asyncio.run(judged(tasks.find(words.task), words.file, gpu, words.repeat))
    except (GraderError, KeyError, OSError) as error:
        sys.exit(f"grade_file: {error}")
    print(json.dumps(verdict.as_dict()) if words.json else f"{verdict.feedback}\nreward {verdict.reward:.2f}")
    if words.repeat > 1:
        print("seconds:", *(f"{each:.1f}" for each in seconds))


if __name__ == "__main__":
    main()

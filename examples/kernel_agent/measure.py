"""Compiles a kernel, tests it, measures it, all in `slime sandbox`, and believes nothing that it says about itself.

- Right is what prints the numbers that the naive kernel prints, for a seed that is drawn anew for each run. They are compared
  here, outside.
- Time is the processor time that the system counted for the process, seen from outside the sandbox. The command may not start
  processes or threads, so no other one can work for it.
- The naive kernel runs in a sandbox of its own, in turn with the other, on the same pinned core: what else the machine does slows both.
  The least of several runs counts.
"""

import asyncio
import math
import os
import secrets
from pathlib import Path

from slime.agent.local_sandbox import LocalSandbox

from examples.kernel_agent.operations import OPERATIONS, naive

TRAINING_SHAPE = (72, 88, 80)  # n, m, k
ODD_SHAPE = (13, 7, 9)
REPEATS = 60  # calls of the kernel in one run
ROUNDS = 3  # runs of each of the two
TOLERANCE = 1e-3  # relative: sums are taken in another order
COMPILE = ["g++", "-std=c++20", "-O2", "-march=native", "-fopenmp-simd", "-static"]
COMPILE_LIMITS = {"seconds": 20, "processes": 16}
RUN_LIMITS = {"seconds": 3, "processes": 1, "memory_mb": 256, "output_kb": 64}
REFERENCE_LIMITS = RUN_LIMITS | {"seconds": 60}  # it ends; a busy machine may make it wait
HARNESS = Path(__file__).with_name("harness.cpp")

TRUSTED = HARNESS.parents[2] / "build" / "kernel_agent"  # the harness and the naive programs, compiled outside

_trusted = None  # the task that compiles them
_measured = {}  # (operation, body): a task that gives its measurement
_places = asyncio.Semaphore(2 * len(os.sched_getaffinity(0)))  # kernels that are looked at, most of them by the compiler
_core = asyncio.Semaphore(1)  # of them one is measured


def source_of(body):
    return f"void kernel(int n,int m,int k,const float*a,const float*b,float*c){{\n{body}\n}}\n"


async def _compile_outside(target, *words):
    part = TRUSTED / f"{target}-{os.getpid()}.part"
    process = await asyncio.create_subprocess_exec(*COMPILE, *map(str, words), "-o", str(part))
    if await process.wait() != 0:
        raise RuntimeError("g++ cannot compile examples/kernel_agent/harness.cpp")
    part.replace(TRUSTED / target)  # whoever runs the one that was there keeps it


async def _compile_all_trusted():
    """harness.o, and naive-0, naive-1, ... in the order of OPERATIONS."""
    TRUSTED.mkdir(parents=True, exist_ok=True)
    await _compile_outside("harness.o", "-c", HARNESS)
    for number, operation in enumerate(OPERATIONS):
        source = TRUSTED / f"naive-{number}-{os.getpid()}.cpp"
        source.write_text(source_of(naive(operation)), encoding="utf-8")
        await _compile_outside(f"naive-{number}", source, TRUSTED / "harness.o")
        source.unlink()


async def _compile_trusted():
    """Once in each process."""
    global _trusted
    if _trusted is None:
        _trusted = asyncio.create_task(_compile_all_trusted())
    if not _trusted.done():
        await asyncio.shield(_trusted)
    _trusted.result()


def _is_close(output, expected):
    try:
        numbers, wanted = [float(x) for x in output.split()], [float(x) for x in expected.split()]
    except ValueError:
        return False
    scale = max(map(abs, wanted))
    return len(numbers) == len(wanted) and all(
        math.isfinite(x) and abs(x - y) <= TOLERANCE * scale for x, y in zip(numbers, wanted)
    )


async def _run(sandbox, program, seed, shape, repeats, limits):
    core = max(os.sched_getaffinity(0))
    words = ["taskset", "-c", core, program]
    return await sandbox.run(words, input=" ".join(map(str, (seed, *shape, repeats))), limits=limits)


async def _compare(trial, judge, reference, shape, repeats):
    """(processor seconds of the naive kernel, of the other), or a sentence."""
    seed = secrets.randbits(63)
    expected = await _run(judge, reference, seed, shape, repeats, REFERENCE_LIMITS)
    if expected["ending"] != "exited" or expected["code"] != 0:
        raise RuntimeError(f"the naive kernel of shape {shape} did not end well: {expected.get('reason') or expected['code']}")
    got = await _run(trial, "/work/kernel", seed, shape, repeats, RUN_LIMITS)
    if got["ending"] != "exited":
        return got["reason"]
    if got["code"] != 0 or not _is_close(got["output"], expected["output"]):
        return "wrong result"
    return expected["cpu_seconds"], got["cpu_seconds"]


async def measure_at(operation, body, shape, repeats=REPEATS, rounds=ROUNDS):
    """{"speedup": 0 where it is not right, "said": what the model is told}"""
    return (await measure_shapes(operation, body, [(shape, repeats)], rounds))[0]


async def measure_shapes(operation, body, shapes, rounds=ROUNDS):
    """The same for each (shape, calls of the kernel in one run)."""
    await _compile_trusted()
    reference = TRUSTED / f"naive-{list(OPERATIONS).index(operation)}"
    async with _places, LocalSandbox(readable=[TRUSTED]) as trial, LocalSandbox(readable=[TRUSTED]) as judge:
        problem = await _compile(trial, body)
        if problem:
            return [{"speedup": 0.0, "said": problem}] * len(shapes)
        async with _core:
            return [
                await _measure_in(trial, judge, reference, [(ODD_SHAPE, 2), *[(shape, repeats)] * rounds])
                for shape, repeats in shapes
            ]


async def _compile(trial, body):
    """What is wrong with it, or nothing."""
    await trial.write_file("/work/kernel.cpp", source_of(body))
    words = [*COMPILE, "/work/kernel.cpp", TRUSTED / "harness.o", "-o", "/work/kernel"]
    built = await trial.run(words, limits=COMPILE_LIMITS)
    if built["ending"] == "exited" and built["code"] == 0:
        return ""
    errors = [line.partition("error: ")[2] for line in built["error"].splitlines() if "error: " in line]
    return f"error: {errors[0] if errors else 'does not link'}"


async def _measure_in(trial, judge, reference, runs):
    times = []
    for shape, repeats in runs:
        times.append(await _compare(trial, judge, reference, shape, repeats))
        if isinstance(times[-1], str):
            return {"speedup": 0.0, "said": times[-1]}
    ours, theirs = zip(*times[1:])
    speedup = min(ours) / min(theirs)
    return {"speedup": speedup, "said": f"right, {speedup:.1f} times as fast"}


async def measure(operation, body):
    """The same text is measured once; whoever asks meanwhile waits for that."""
    key = (operation, body)
    if key not in _measured:
        _measured[key] = asyncio.create_task(measure_at(operation, body, TRAINING_SHAPE))
    return await asyncio.shield(_measured[key])

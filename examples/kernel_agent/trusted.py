"""The trusted side of grading, as the grader sees it: reference.py, a process outside all sandboxes, and the cases that it keeps.

What an answer's process says is never believed; what is asked here is. docs/decisions/0144-kernel-agent.md says why.
"""

import asyncio
import itertools
import json
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from examples.kernel_agent.failures import Failed, GraderError
from examples.kernel_agent.python_session import WarmProcesses, cuda_index

HERE = Path(__file__).parent
COMPILE = [
    "g++",
    "-std=c++20",
    "-O3",
    "-march=native",
    "-fopenmp-simd",
    "-ffast-math",
    "-fno-finite-math-only",
    "-D__FAST_MATH__",
    "-static",
]
# A time below this part of eager Torch's is not told from the cost of starting and reading.
SHORTEST = 0.01


class Reference:
    """reference.py, and a folder that sandboxes may read: the harness, compiled, and inputs."""

    def __init__(self, gpu=None):
        self.gpu = gpu
        self.folder = Path(tempfile.mkdtemp(prefix="kernel_agent-"))
        self.folder.chmod(0o755)  # a sandbox is another user's where this one is root
        self.private = Path(tempfile.mkdtemp(prefix="kernel_agent-outputs-"))
        self.numbers = itertools.count()
        self.lock = asyncio.Lock()
        self.stopwatch = asyncio.Semaphore(1)  # one answer is timed
        self.places = asyncio.Semaphore(2 * len(os.sched_getaffinity(0)))  # so many are looked at
        self.process = None
        self.warm = WarmProcesses(self.folder, python())

    async def start(self):
        for name in ("runner.py", "loaded.py"):
            shutil.copy(HERE / "inside" / name, self.folder / name)
        words = [python(), HERE / "reference.py", self.folder]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        if self.gpu is not None:  # eager Torch is timed where the answer is
            environment |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(cuda_index(self.gpu))}
        self.process = await asyncio.create_subprocess_exec(
            *map(str, words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            limit=64 << 20,
        )
        if not await self.process.stdout.readline():
            raise GraderError(f"{python()} has no Torch: set KERNEL_AGENT_PYTHON to a Python that has it")
        await self._compile("main.o", "-c", HERE / "inside" / "cpp_main.cpp")
        nothing = self.folder / "nothing.cpp"
        nothing.write_text('struct Tensor;\nextern "C" void call_answer(const Tensor*, void*) {}\n', encoding="utf-8")
        await self._compile("nothing", nothing, self.folder / "main.o")

    async def _compile(self, name, *words):
        process = await asyncio.create_subprocess_exec(*COMPILE, *map(str, words), "-o", str(self.folder / name))
        if await process.wait() != 0:
            raise GraderError(f"{COMPILE[0]} cannot compile examples/kernel_agent/inside/cpp_main.cpp")

    async def ask(self, do, **request):
        async with self.lock:
            self.process.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
            line = await self.process.stdout.readline()
        if not line:
            raise GraderError("reference.py has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise GraderError(f"reference.py, {do}: {answer['error']}")
        return answer

    def name(self, ending):
        return f"{next(self.numbers)}.{ending}"

    async def close(self):
        await self.warm.close()
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        for folder in (self.folder, self.private):
            shutil.rmtree(folder, ignore_errors=True)


def python():
    return os.environ.get("KERNEL_AGENT_PYTHON") or sys.executable


_references = {}  # (event loop, N of /dev/nvidiaN or None): a task that gives its Reference


async def the_reference(gpu=None):
    key = (asyncio.get_running_loop(), gpu)
    if key not in _references:

        async def make():
            made = Reference(gpu)
            await made.start()
            return made

        _references[key] = asyncio.create_task(make())
    return await asyncio.shield(_references[key])


async def close():
    """Ends what grading has started in this event loop."""
    loop = asyncio.get_running_loop()
    for key in [key for key in _references if key[0] is loop]:
        await (await _references.pop(key)).close()


class Cases:
    """Cases that reference.py keeps for one grading, and files for them."""

    def __init__(self, trusted, task):
        self.trusted, self.task, self.keys, self.files = trusted, task, [], []

    async def open(self, shape, *, sets=1, device="cpu"):
        key = self.trusted.name("case")
        self.keys.append(key)
        request = {
            "source": self.task.shown,
            "shape": shape,
            "seed": secrets.randbits(48),
            "sets": sets,
            "device": device,
        }
        return key, await self.trusted.ask("open", key=key, **request)

    def file(self, folder, ending):
        path = folder / self.trusted.name(ending)
        self.files.append(path)
        return path

    async def check(self, key, data, **about):
        path = self.file(self.trusted.private, "outputs")
        path.write_bytes(data)
        problem = (await self.trusted.ask("check", key=key, path=str(path), **about))["problem"]
        path.unlink()
        return problem

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for path in self.files:
            path.unlink(missing_ok=True)
        await self.trusted.ask("close", keys=self.keys)


def wrong(problem, is_shown):
    return Failed("wrong", f"wrong result: {problem}" if is_shown else "wrong result at a shape that is not shown")

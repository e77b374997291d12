"""Grades an answer to a task: does it compile, is it right, how much faster than eager Torch is it.

    verdict = await grade(tasks.find("softmax_rows"), code, "cpp")

Model-written code runs in `slime sandbox` alone. What is right is computed by reference.py, a process of its own outside; inputs and weights are
drawn anew for each run; outputs are compared outside; time is taken outside: for C++ the processor time that the kernel counts for the
process, for Triton the wall's time from a secret seed going in to digests of all calls coming out. docs/decisions/0144-kernel-agent.md says why.
"""

import asyncio
import itertools
import json
import math
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from slime.agent.local_sandbox import LocalSandbox, SandboxError

from examples.kernel_agent import source_rules
from examples.kernel_agent.named_pipe import NamedPipe
from examples.kernel_agent.python_session import PythonSession, cuda_index
from examples.kernel_agent.tasks import shapes_of

__all__ = ["GraderError", "Verdict", "grade", "reward_of"]

HERE = Path(__file__).parent
MOST_SAID = 500
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
COMPILE_LIMITS = {"seconds": 120, "processes": 16, "memory_mb": 1024}
RUN = ["prlimit", "--cpu=4"]  # seconds of the processor; a busy machine may make it wait for long
RUN_LIMITS = {"seconds": 120, "processes": 1, "memory_mb": 512, "output_kb": 64, "disk_mb": 128}
# A time below this part of eager Torch's is not told from the cost of starting and reading.
SHORTEST = 0.01
PREFIX = '#include <algorithm>\n#include <cmath>\n#include <cstdint>\n#include <cstring>\n#include <limits>\n#line 1 "answer.cpp"\n'


class GraderError(RuntimeError):
    """The set-up cannot grade: no sandbox, no Torch, no such GPU. Never an answer's fault."""


@dataclass(frozen=True)
class Verdict:
    compiled: bool
    correct: bool
    speedup: float  # over eager Torch; 0 where it is not correct, or was not timed
    reward: float
    feedback: str  # for the model
    stage: str  # how far it came: refused, compile, run, wrong, correct
    held_out_speedups: tuple = ()  # (sizes in words, speed-up) of each held-out shape, where it was asked for

    def as_dict(self):
        return asdict(self)


def reward_of(correct, speedup):
    """0 where it is not correct; 0.3 for the speed of eager Torch, 0.35 more for each doubling; from 0.1 to 1."""
    if not correct:
        return 0.0
    return min(1.0, max(0.1, 0.3 + 0.35 * math.log2(speedup))) if speedup > 0 else 0.1


class _Failed(Exception):
    def __init__(self, stage, said):
        self.stage, self.said = stage, said


def _plain(text):
    text = "".join(c if c == "\n" or " " <= c <= "~" else "?" for c in text).replace("<|", "< |")
    return "\n".join(text.strip().splitlines()[:8])[:MOST_SAID]


class _Trusted:
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

    async def start(self):
        shutil.copy(HERE / "inside" / "runner.py", self.folder / "runner.py")
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
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        for folder in (self.folder, self.private):
            shutil.rmtree(folder, ignore_errors=True)


def python():
    return os.environ.get("KERNEL_AGENT_PYTHON") or sys.executable


_trusted = {}  # (event loop, N of /dev/nvidiaN or None): a task that gives its _Trusted


async def _the_trusted(gpu=None):
    key = (asyncio.get_running_loop(), gpu)
    if key not in _trusted:

        async def make():
            made = _Trusted(gpu)
            await made.start()
            return made

        _trusted[key] = asyncio.create_task(make())
    return await asyncio.shield(_trusted[key])


async def close():
    """Ends what grading has started in this event loop."""
    loop = asyncio.get_running_loop()
    for key in [key for key in _trusted if key[0] is loop]:
        await (await _trusted.pop(key)).close()


class _Cases:
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


def _wrong(problem, is_shown):
    return _Failed("wrong", f"wrong result: {problem}" if is_shown else "wrong result at a shape that is not shown")


# ---- C++


def call_source(prototype):
    """What takes a set of tensors apart: `x` and its sizes `x_0`, `x_1`, then the next."""
    words = re.fullmatch(r"void forward\((.*)\)", prototype).group(1).split(", ")
    values, tensor = [], -1
    for word in words[:-1]:
        kind, name = word.rsplit(" ", 1)
        if kind.endswith("*"):
            tensor += 1
            values.append(f"static_cast<{kind}>(tensors[{tensor}].data)")
        else:
            values.append(f"tensors[{tensor}].shape[{name.rsplit('_', 1)[1]}]")
    kind = words[-1].rsplit(" ", 1)[0]
    return (
        f'\n#line 1 "call.cpp"\n{prototype};\nstruct SlimeTensor_ {{ const void* data; const int64_t* shape; }};\n'
        'extern "C" void call_answer(const SlimeTensor_* tensors, void* out) {\n'
        f"  forward({', '.join([*values, f'static_cast<{kind}>(out)'])});\n}}\n"
    )


async def _compile_answer(trusted, sandbox, task, code):
    await sandbox.write_file("/work/answer.cpp", PREFIX + code + call_source(task.prototype))
    words = [*COMPILE, "/work/answer.cpp", trusted.folder / "main.o", "-o", "/work/answer"]
    built = await sandbox.run(words, environment={"LC_ALL": "C"}, limits=COMPILE_LIMITS)
    if built["ending"] == "exited" and built["code"] == 0:
        return
    if built["ending"] != "exited":
        raise _Failed("compile", f"does not compile: the compiler {built.get('reason', built['ending'])}")
    errors = [
        f"line {found.group(2)}: {found.group(3)}" if found.group(1) == "answer" else found.group(3)
        for found in re.finditer(
            r"^(answer|call)\.cpp:(\d+):\d+: (?:fatal )?error: (.*)$", built["error"], re.MULTILINE
        )
    ]
    if not errors:
        errors = [
            f"it should define {task.prototype}" if "undefined reference" in built["error"] else "it does not link"
        ]
    raise _Failed("compile", "does not compile: " + "\n".join(errors[:3]))


async def _run_cpp(trusted, sandbox, program, inputs, size, is_shown):
    """(processor seconds, outputs)"""
    pipe = NamedPipe(trusted.folder / trusted.name("pipe"))
    deadline = time.perf_counter() + RUN_LIMITS["seconds"] + 30  # the sandbox's own limit comes first
    try:
        task = asyncio.create_task(sandbox.run([*RUN, program, inputs, pipe.path], limits=RUN_LIMITS))
        outputs = await asyncio.get_running_loop().run_in_executor(None, pipe.read, size, deadline, task.done)
        done = await task
    finally:
        pipe.close()
    where = "" if is_shown else " at a shape that is not shown"
    if done["ending"] != "exited" or done["code"] != 0:
        raise _Failed("run", f"{done.get('reason') or 'ended'}{where}".replace("was ended", "it was ended", 1))
    return done["cpu_seconds"], outputs


async def _case_for_cpp(cases, shape, sets):
    key, about = await cases.open(shape, sets=sets)
    inputs = cases.file(cases.trusted.folder, "inputs")
    await cases.trusted.ask("write_words", key=key, path=str(inputs))
    inputs.chmod(0o644)
    return key, inputs, about["sets"], about["sets"] * about["output"]["bytes"]


async def _judge_cpp(cases, sandbox, shape, is_shown):
    """Runs it on inputs drawn anew, and compares."""
    key, inputs, _, size = await _case_for_cpp(cases, shape, 2)
    _, outputs = await _run_cpp(cases.trusted, sandbox, "/work/answer", inputs, size, is_shown)
    problem = await cases.check(key, outputs)
    if problem:
        raise _wrong(problem, is_shown)


async def _time_cpp(cases, sandbox, shape, rounds):
    trusted, times = cases.trusted, []
    for _ in range(rounds):
        key, inputs, sets, size = await _case_for_cpp(cases, shape, 0)
        async with trusted.stopwatch:
            nothing, _ = await _run_cpp(trusted, sandbox, trusted.folder / "nothing", inputs, size, True)
            answer, outputs = await _run_cpp(trusted, sandbox, "/work/answer", inputs, size, True)
            eager = (await trusted.ask("time", key=key))["seconds"]
        problem = await cases.check(key, outputs)
        if problem:
            raise _wrong(problem, True)
        times.append([each / sets for each in (nothing, answer, eager)])
        inputs.unlink()
    nothing, answer, eager = map(min, zip(*times))
    return eager / max(answer - nothing, SHORTEST * eager)


async def _grade_cpp(trusted, task, code, shapes, rounds, timed):
    async with trusted.places, _Cases(trusted, task) as cases, LocalSandbox(readable=[trusted.folder]) as sandbox:
        await _compile_answer(trusted, sandbox, task, code)
        for index, shape in enumerate(shapes):
            await _judge_cpp(cases, sandbox, shape, index == 0)
        return [await _time_cpp(cases, sandbox, shape, rounds) for shape in timed]


# ---- Python with Triton


def _is_near(digests, chain):
    """Whether each call's digests are those of eager Torch; no number is never near."""
    rows = zip(digests, chain["digests"], chain["room"])
    return len(digests) == len(chain["digests"]) and all(
        isinstance(x, (int, float)) and abs(x - y) <= r
        for got, right, room in rows
        for x, y, r in zip(got, right, room, strict=True)
    )


async def _judge_python(cases, session, shape, is_shown):
    trusted = cases.trusted
    key, about = await cases.open(shape)
    path = cases.file(trusted.private, "tensors")
    tensors = await trusted.ask("write_tensors", key=key, path=str(path))
    data, count = path.read_bytes(), len(tensors["weights"])
    split = sum(each["bytes"] for each in tensors["tensors"][:count])
    weights = {"weights": tensors["weights"], "tensors": tensors["tensors"][:count], "shape": tensors["shape"]}
    where = "" if is_shown else " at a shape that is not shown"
    await session.ask({"do": "build", **weights}, data[:split], where=where)
    call = {"do": "call", "tensors": tensors["tensors"][count:], "limit_bytes": about["output"]["bytes"]}
    said, output = await session.ask(call, data[split:], where=where, limit_bytes=about["output"]["bytes"])
    problem = await cases.check(key, output, about={"dtype": said.get("dtype"), "shape": said.get("shape")})
    if problem:
        raise _wrong(problem, is_shown)


async def _check_sample(cases, session, key, request, size):
    """One call at the shape that was timed, element by element: an answer has no state that tells it from those on the clock."""
    seed = secrets.randbits(48)
    _, output = await session.ask(request | {"do": "sample", "seed": seed}, limit_bytes=size)
    path = cases.file(cases.trusted.private, "outputs")
    path.write_bytes(output)
    if (await cases.trusted.ask("check_sample", key=key, seed=seed, path=str(path)))["problem"]:
        raise _Failed("wrong", "wrong result at a large shape")


async def _time_python(cases, session, shape, rounds):
    trusted = cases.trusted
    key, _ = await cases.open(shape, device="cuda")
    path = cases.file(trusted.private, "tensors")
    tensors = await trusted.ask("write_tensors", key=key, path=str(path))
    await session.ask({"do": "build", **tensors}, path.read_bytes())
    request = {"do": "chain", "shape": tensors["shape"]}
    times = []
    async with trusted.stopwatch:
        calls = (await trusted.ask("chain", key=key, seed=secrets.randbits(48), calls=0))["calls"]
        await session.ask(
            request | {"seed": secrets.randbits(48), "calls": 2}
        )  # what is compiled for this shape is compiled now
        for _ in range(rounds):
            seed = secrets.randbits(48)  # nobody inside knows it before the clock runs
            chain = await trusted.ask("chain", key=key, seed=seed, calls=calls)
            said, _, seconds = await session.timed(request | {"seed": seed, "calls": calls})
            if not _is_near(said.get("digests", []), chain):
                raise _Failed("wrong", "wrong result in a timed call")
            times.append((chain["null_seconds"], seconds, chain["seconds"]))
    await _check_sample(cases, session, key, request, chain["output"]["bytes"])
    nothing, answer, eager = map(min, zip(*times))
    eager -= nothing
    return max(0.0, eager / max(answer - nothing, SHORTEST * eager))  # 0: disturbed so much that nothing can be said


async def _grade_python(trusted, task, code, shapes, rounds, gpu, timed):
    problem = source_rules.problem_of(code)
    if problem:
        raise _Failed("refused", f"refused: {problem}")
    return await _run_python(trusted, task, code, shapes, rounds, gpu, timed)


async def run_python(trusted, task, code, shapes, rounds, gpu):
    """Without the source rules: tests see what the other fences hold. The speed-up, 0 where it is not timed."""
    timed = [shapes_of(task)[1]] if rounds and gpu != "interpreter" else []
    return (await _run_python(trusted, task, code, shapes, rounds, gpu, timed) or [0.0])[0]


async def _run_python(trusted, task, code, shapes, rounds, gpu, timed):
    async with trusted.places, _Cases(trusted, task) as cases:
        async with PythonSession(trusted.folder, python(), code, gpu, _Failed, GraderError) as session:
            await session.ask({"do": "load", "input_source": task.input_source}, stage="compile")
            for index, shape in enumerate(shapes):
                await _judge_python(cases, session, shape, index == 0)
            speedups = [await _time_python(cases, session, shape, rounds) for shape in timed]
            if speedups:
                await _judge_python(cases, session, shapes[-1], len(shapes) == 1)  # still right after all those calls
            return speedups


def _in_words(sizes):
    return " ".join(f"{name}={size}" for name, size in sizes.items())


async def grade(task, code, backend, *, held_out=True, rounds=3, gpu=None, timed=True, time_held_out=False):
    """The Verdict. `backend` is "cpp" or "triton"; `gpu`: N of /dev/nvidiaN, None: the only one; "interpreter": Triton's, on the CPU.
    The speed-up is that of the shown shape, on a GPU of the task's larger one; with `time_held_out` the others are timed too."""
    if backend not in ("cpp", "triton"):
        raise GraderError(f"backend {backend}: should be cpp or triton")
    if backend == "cpp" and task.prototype is None:
        raise GraderError(
            f"{task.path}: has no C++ function to write; it should end with the lines of tasks/level1/softmax_rows.py"
        )
    trusted = await _the_trusted(gpu if isinstance(gpu, int) else None)
    hidden, gpu_shape = shapes_of(task)
    shapes = [{}, *(hidden if held_out else [])]
    is_timed = timed and rounds and gpu != "interpreter"
    to_time = [{} if backend == "cpp" else gpu_shape, *(hidden if time_held_out else [])] if is_timed else []
    try:
        if backend == "cpp":
            speedups = await _grade_cpp(trusted, task, code, shapes, rounds, to_time)
        else:
            speedups = await _grade_python(trusted, task, code, shapes, rounds, gpu, to_time)
    except _Failed as failed:
        return Verdict(failed.stage not in ("refused", "compile"), False, 0.0, 0.0, _plain(failed.said), failed.stage)
    except SandboxError as error:
        raise GraderError(str(error)) from error
    speedup = speedups[0] if speedups else 0.0
    said = f"correct, {speedup:.2f} times as fast as eager Torch" if speedup > 0 else "correct"
    others = tuple((_in_words(shape), each) for shape, each in zip(to_time[1:], speedups[1:]))
    return Verdict(True, True, speedup, reward_of(True, speedup), said, "correct", others)

"""Answers in C++: compiled and run in the sandbox, compared outside, timed by the processor time that the kernel counts."""

import asyncio
import re
import time

from slime.agent.local_sandbox import LocalSandbox

from examples.kernel_agent.failures import Failed
from examples.kernel_agent.named_pipe import NamedPipe
from examples.kernel_agent.trusted import COMPILE, SHORTEST, Cases, wrong

COMPILE_LIMITS = {"seconds": 120, "processes": 16, "memory_mb": 1024}
RUN = ["prlimit", "--cpu=4"]  # seconds of the processor; a busy machine may make it wait for long
RUN_LIMITS = {"seconds": 120, "processes": 1, "memory_mb": 512, "output_kb": 64, "disk_mb": 128}
PREFIX = '#include <algorithm>\n#include <cmath>\n#include <cstdint>\n#include <cstring>\n#include <limits>\n#line 1 "answer.cpp"\n'


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
        raise Failed("compile", f"does not compile: the compiler {built.get('reason', built['ending'])}")
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
    raise Failed("compile", "does not compile: " + "\n".join(errors[:3]))


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
        raise Failed("run", f"{done.get('reason') or 'ended'}{where}".replace("was ended", "it was ended", 1))
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
        raise wrong(problem, is_shown)


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
            raise wrong(problem, True)
        times.append([each / sets for each in (nothing, answer, eager)])
        inputs.unlink()
    nothing, answer, eager = map(min, zip(*times))
    return eager / max(answer - nothing, SHORTEST * eager)


async def grade_cpp(trusted, task, code, shapes, rounds, timed):
    async with trusted.places, Cases(trusted, task) as cases, LocalSandbox(readable=[trusted.folder]) as sandbox:
        await _compile_answer(trusted, sandbox, task, code)
        for index, shape in enumerate(shapes):
            await _judge_cpp(cases, sandbox, shape, index == 0)
        return [await _time_cpp(cases, sandbox, shape, rounds) for shape in timed]

"""Answers in Python with Triton: run by a process in the sandbox, compared outside, timed by the wall's clock from a secret seed going in
to digests of all calls coming out."""

import secrets

from examples.kernel_agent import source_rules
from examples.kernel_agent.failures import Failed
from examples.kernel_agent.python_session import PythonSession
from examples.kernel_agent.tasks import shapes_of
from examples.kernel_agent.trusted import SHORTEST, Cases, python, wrong


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
        raise wrong(problem, is_shown)


async def _check_sample(cases, session, key, request, size):
    """One call at the shape that was timed, element by element: an answer has no state that tells it from those on the clock."""
    seed = secrets.randbits(48)
    _, output = await session.ask(request | {"do": "sample", "seed": seed}, limit_bytes=size)
    path = cases.file(cases.trusted.private, "outputs")
    path.write_bytes(output)
    if (await cases.trusted.ask("check_sample", key=key, seed=seed, path=str(path)))["problem"]:
        raise Failed("wrong", "wrong result at a large shape")


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
                raise Failed("wrong", "wrong result in a timed call")
            times.append((chain["null_seconds"], seconds, chain["seconds"]))
    await _check_sample(cases, session, key, request, chain["output"]["bytes"])
    nothing, answer, eager = map(min, zip(*times))
    eager -= nothing
    return max(0.0, eager / max(answer - nothing, SHORTEST * eager))  # 0: disturbed so much that nothing can be said


async def grade_python(trusted, task, code, shapes, rounds, gpu, timed):
    problem = source_rules.problem_of(code)
    if problem:
        raise Failed("refused", f"refused: {problem}")
    return await _run_python(trusted, task, code, shapes, rounds, gpu, timed)


async def run_python(trusted, task, code, shapes, rounds, gpu):
    """Without the source rules: tests see what the other fences hold. The speed-up, 0 where it is not timed."""
    timed = [shapes_of(task)[1]] if rounds and gpu != "interpreter" else []
    return (await _run_python(trusted, task, code, shapes, rounds, gpu, timed) or [0.0])[0]


async def _run_python(trusted, task, code, shapes, rounds, gpu, timed):
    async with trusted.places, Cases(trusted, task) as cases:
        async with PythonSession(trusted.folder, python(), code, gpu, trusted.warm) as session:
            await session.ask({"do": "load", "input_source": task.input_source}, stage="compile")
            for index, shape in enumerate(shapes):
                await _judge_python(cases, session, shape, index == 0)
            speedups = [await _time_python(cases, session, shape, rounds) for shape in timed]
            if speedups:
                await _judge_python(cases, session, shapes[-1], len(shapes) == 1)  # still right after all those calls
            return speedups

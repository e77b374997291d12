"""Grades an answer to a task: does it compile, is it right, how much faster than eager Torch is it.

    verdict = await grade(tasks.find("softmax_rows"), code, "cpp")

Model-written code runs in `slime sandbox` alone (grade_cpp.py, grade_python.py). What is right is computed outside (trusted.py), inputs and
weights are drawn anew for each run, and outputs are compared and time is taken outside. docs/decisions/0144-kernel-agent.md says why.
"""

import math
from dataclasses import asdict, dataclass

from slime.agent.local_sandbox import SandboxError

from examples.kernel_agent.failures import Failed, GraderError
from examples.kernel_agent.grade_cpp import grade_cpp
from examples.kernel_agent.grade_python import grade_python
from examples.kernel_agent.tasks import shapes_of
from examples.kernel_agent.trusted import close, the_reference

__all__ = ["GraderError", "Verdict", "close", "grade", "reward_of"]

MOST_SAID = 500


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


def plain(text):
    text = "".join(c if c == "\n" or " " <= c <= "~" else "?" for c in text).replace("<|", "< |")
    return "\n".join(text.strip().splitlines()[:8])[:MOST_SAID]


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
    trusted = await the_reference(gpu if isinstance(gpu, int) else None)
    hidden, gpu_shape = shapes_of(task)
    shapes = [{}, *(hidden if held_out else [])]
    is_timed = timed and rounds and gpu != "interpreter"
    to_time = [{} if backend == "cpp" else gpu_shape, *(hidden if time_held_out else [])] if is_timed else []
    try:
        if backend == "cpp":
            speedups = await grade_cpp(trusted, task, code, shapes, rounds, to_time)
        else:
            speedups = await grade_python(trusted, task, code, shapes, rounds, gpu, to_time)
    except Failed as failed:
        return Verdict(failed.stage not in ("refused", "compile"), False, 0.0, 0.0, plain(failed.said), failed.stage)
    except SandboxError as error:
        raise GraderError(str(error)) from error
    speedup = speedups[0] if speedups else 0.0
    said = f"correct, {speedup:.2f} times as fast as eager Torch" if speedup > 0 else "correct"
    others = tuple((_in_words(shape), each) for shape, each in zip(to_time[1:], speedups[1:]))
    return Verdict(True, True, speedup, reward_of(True, speedup), said, "correct", others)

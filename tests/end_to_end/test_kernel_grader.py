"""examples/kernel_agent: tasks, the grader on answers that are right, and on answers that cheat (kernel_cheats.py)."""

import asyncio
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SLIME
from kernel_cheats import CPP, PYTHON, TASK, function, without_rules
from torch_python import torch_python

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
ANSWERS = ROOT / "examples" / "kernel_agent" / "answers"
CHECK = subprocess.run([SLIME, "sandbox", "--check"], capture_output=True, text=True, timeout=60)
pytestmark = [
    pytest.mark.skipif(CHECK.returncode != 0, reason=CHECK.stderr.strip()),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++"),
]
needs_torch = pytest.mark.skipif(torch_python() is None, reason="no python3 with torch (Debian: python3-torch)")


@functools.cache
def has_triton():
    words = [torch_python() or "false", "-c", "import torch, triton"]
    return subprocess.run(words, capture_output=True, timeout=120).returncode == 0


@pytest.fixture(autouse=True)
def _paths(monkeypatch):
    monkeypatch.setenv("SLIME_BINARY", str(SLIME))
    if torch_python() is not None:
        monkeypatch.setenv("KERNEL_AGENT_PYTHON", torch_python())


@pytest.fixture(scope="module", autouse=True)
def _runner():
    """One event loop for all: what grading starts in it, a process with Torch, is started once."""
    from examples.kernel_agent.grade import close

    with asyncio.Runner() as runner:
        in_turn.run = runner.run
        yield
        runner.run(close())


def in_turn(make):
    return in_turn.run(make())


def verdict_of(name, code, backend="cpp", **words):
    from examples.kernel_agent import tasks
    from examples.kernel_agent.grade import grade

    return in_turn(lambda: grade(tasks.find(name), code, backend, **words))


def test_there_are_tasks_of_three_levels_and_none_shows_what_is_held_out():
    from examples.kernel_agent import tasks

    assert len(tasks.load()) >= 40
    assert [len(tasks.load(level)) >= 10 for level in (1, 2, 3)] == [True] * 3
    for task in tasks.load():
        assert "class Model(nn.Module)" in task.shown and "def get_init_inputs" in task.shown, task.name
        assert "Held out" not in task.shown and "class Model" not in task.input_source, task.name
        held_out, gpu = tasks.shapes_of(task)
        assert len(held_out) >= 2 and gpu not in held_out, task.name
        assert task.prototype.startswith("void forward(") and task.prototype.endswith("* out)"), task.name
    with pytest.raises(KeyError, match="near it: softmax_rows"):
        tasks.find("softmax_row")


@needs_torch
def test_every_task_runs_at_every_shape_and_eager_torch_is_well_within_the_tolerance():
    done = subprocess.run(
        [torch_python(), "-c", EVERY_TASK],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "all 53"


EVERY_TASK = """
import inspect, re
from examples.kernel_agent import reference, tasks
runner = reference.runner_in(str(tasks.FOLDER.parent / "inside"))
TYPES = {"float32": "float", "float64": "double", "int64": "int64_t", "bfloat16": "uint16_t"}
for task in tasks.load():
    for shape in [{}, *tasks.shapes_of(task)[0]]:
        case = reference.Case(runner, task.shown, shape, 7)
        case.add_sets(2)
        for inputs in case.sets:
            output, right = case.model(*inputs), case.right(inputs)
            dtype = reference.about(output)["dtype"]
            reference.TOLERANCE[dtype] /= 2
            assert reference.problem_of(output, right, dtype) == "", (task.name, shape)
            reference.TOLERANCE[dtype] *= 2
    names = list(inspect.signature(case.model.forward).parameters) + [name.replace(".", "_") for name, _ in case.weights()]
    types = [TYPES[reference.about(tensor)["dtype"]] for tensor in [*case.sets[0], *dict(case.weights()).values()]]
    pointers = [f"const {kind}* {name}" for kind, name in zip(types, names)] + [f"{TYPES[dtype]}* out"]
    assert re.findall(r"(?:const )?\\w+\\* \\w+", task.prototype) == pointers, task.name
print("all", len(tasks.load()))
"""


@needs_torch
@pytest.mark.parametrize("name", sorted(path.stem for path in ANSWERS.glob("*.cpp")))
def test_a_known_good_kernel_in_cpp_is_right_and_timed(name):
    verdict = verdict_of(name, (ANSWERS / f"{name}.cpp").read_text())
    assert (verdict.stage, verdict.compiled, verdict.correct) == ("correct", True, True), verdict
    assert verdict.speedup > 0.05 and 0.1 <= verdict.reward <= 1, verdict
    assert re.fullmatch(r"correct, [\d.]+ times as fast as eager Torch", verdict.feedback)


@needs_torch
def test_a_kernel_that_does_its_work_eight_times_is_slower():
    right = (ANSWERS / "matmul.cpp").read_text()
    slow = right.replace("void forward(", "static void once(") + (
        "\nvoid forward(const float* a, int64_t a_0, int64_t a_1, const float* b, int64_t b_0, int64_t b_1, float* out) {"
        'for (int i = 0; i < 8; ++i) { once(a, a_0, a_1, b, b_0, b_1, out); asm volatile("" ::: "memory"); } }'
    )
    once, eight = (verdict_of("matmul", code).speedup for code in (right, slow))
    assert 2 < once / eight < 32, (once, eight)


@needs_torch
@pytest.mark.parametrize("name", CPP)
def test_a_cheat_in_cpp_earns_nothing(name):
    code, said = CPP[name]
    verdict = verdict_of(TASK, code, rounds=1)
    assert (verdict.reward, verdict.correct, verdict.speedup) == (0, False, 0), verdict
    assert re.search(said, verdict.feedback), verdict


@needs_torch
def test_what_does_not_compile_is_told_with_its_line():
    verdict = verdict_of(TASK, function("int n = 3\nreturn;"), rounds=0)
    assert (verdict.stage, verdict.compiled) == ("compile", False)
    assert re.match(r"does not compile: line 4: expected ',' or ';' before 'return'", verdict.feedback), verdict
    assert "it should define void forward(const float* x" in verdict_of(TASK, "int nothing = 0;", rounds=0).feedback


@pytest.mark.parametrize("name", PYTHON)
def test_the_source_rules_say_what_an_answer_in_python_may_not(name):
    from examples.kernel_agent import source_rules

    cheat = PYTHON[name]
    problem = source_rules.problem_of(cheat.code)
    assert re.search(cheat.rules, problem) if cheat.rules else problem == "", problem


@pytest.mark.parametrize("name", sorted(path.stem for path in ANSWERS.glob("*.py")))
def test_the_source_rules_let_known_good_kernels_through(name):
    from examples.kernel_agent import source_rules

    assert source_rules.problem_of((ANSWERS / f"{name}.py").read_text()) == ""


@needs_torch
def test_without_the_source_rules_a_cheat_in_python_still_earns_nothing():
    held = {name: cheat for name, cheat in PYTHON.items() if cheat.others is not None}
    held = {name: cheat for name, cheat in held.items() if not cheat.needs_triton or has_triton()}

    async def all_of_them():
        verdicts = await asyncio.gather(*(without_rules(cheat.code, "interpreter") for cheat in held.values()))
        return dict(zip(held, verdicts))

    found = in_turn(all_of_them)
    wrong = {
        name: one for name, one in found.items() if one[0] == "correct" or not re.search(held[name].others, one[1])
    }
    assert not wrong


@needs_torch
def test_triton_answers_are_right_in_the_interpreter():
    if not has_triton():
        pytest.skip("no triton beside torch")
    for name in ("softmax_rows", "linear_gelu"):
        verdict = verdict_of(name, (ANSWERS / f"{name}.py").read_text(), "triton", gpu="interpreter")
        assert (verdict.stage, verdict.speedup, verdict.reward) == ("correct", 0, 0.1), (name, verdict)


def test_the_reward_is_that_of_the_page():
    from examples.kernel_agent.grade import reward_of

    assert reward_of(False, 100) == 0
    assert [round(reward_of(True, speedup), 4) for speedup in (0, 0.01, 0.5, 1, 2, 4, 50)] == [
        0.1,
        0.1,
        0.1,
        0.3,
        0.65,
        1,
        1,
    ]

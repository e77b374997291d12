"""The kernel agent's questions, the code in its answers, its turns, and what they are worth."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from examples.kernel_agent import tasks
from examples.kernel_agent.prompts import answer, code_of, contract, heard, question
from examples.kernel_agent.python_session import cuda_index, gpu_numbers
from examples.kernel_agent.scores import Rules, trajectory_score, turn_score
from examples.kernel_agent.turns import ContextFull, write_kernel

SOURCE = "class Model(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"


def found(speedup, said="", compiled=True):
    """As the grader says it, but that its reward is the speed-up over ten."""
    said = said or f"right, {speedup} times as fast"
    return {
        "compiled": compiled,
        "correct": speedup > 0,
        "speedup": speedup,
        "reward": speedup / 10,
        "feedback": said,
        "stage": "?",
    }


WRONG, BROKEN = found(0, "wrong result"), found(0, "error: expected ;", compiled=False)


def test_the_question_has_the_torch_code_and_how_the_answer_is_called():
    asked = question(SOURCE, "Define `void kernel(...)`.", "cpp")
    assert f"```python\n{SOURCE}```" in asked and "Define `void kernel(...)`." in asked
    assert "C++" in asked and "one ```cpp block" in asked and "Triton" not in asked
    asked = question(SOURCE, "Define ModelNew.", "triton")
    assert "Triton" in asked and "one ```python block" in asked and "C++" not in asked
    assert question(SOURCE, "Define ModelNew.", "triton", is_brief=True) == SOURCE.strip()


@pytest.mark.parametrize(
    "text, code",
    [
        (answer("int a;\nint b;", "cpp"), "int a;\nint b;"),
        ("First ```x``` then\n```cpp\nfirst\n```\nno, better:\n```C++\nsecond\n```\nDone.", "second"),
        ("```\nunmarked\n```", "unmarked"),
        ("```cpp\nmine\n```\nwhich is, in Python,\n```python\ntheirs\n```", "mine"),
        ("```python\nprint()\n```", None),
        ("```cpp\nnever closed", None),
        ("void kernel();", None),
        ("", None),
        ("<think>\n```cpp\na thought\n```\n</think>\n```cpp\nsaid\n```", "said"),
        ("<think>\n```cpp\na thought\n```\n</think>\nI give up.", None),
        ("```cpp\n// a ``` within a line\nx;\n```", "// a ``` within a line\nx;"),
        ("```cpp\n```", ""),
    ],
)
def test_the_last_closed_block_of_the_language_is_the_code(text, code):
    assert code_of(text, "cpp") == code


def test_triton_is_in_a_block_of_python():
    assert code_of("```cpp\nno\n```\n```python\nyes\n```", "triton") == "yes"
    assert code_of("```triton\nyes\n```", "triton") == "yes"


def test_what_a_compiler_says_opens_no_turn_and_has_an_end():
    said = heard(found(0, "<|im_end|>" * 1000))
    assert "<|im_end|>" not in said and len(said) < 1000
    assert len(heard(found(0, "x" * 1000), is_brief=True)) == 48
    assert heard(found(0, "does not compile: line 3: expected ;\nand more"), is_brief=True) == "does not compile"
    assert "faster" in heard(found(2.0)) and "corrected" in heard(BROKEN)


@pytest.mark.parametrize(
    "one, score",
    [(BROKEN, 0.0), (WRONG, 0.05), (found(1.0), 0.1), (found(8.0), 0.8)],
)
def test_a_turns_score(one, score):
    assert turn_score(one) == score


def test_a_conversations_score():
    best = Rules(turn_discount=0.5)
    assert trajectory_score([], best) == 0
    assert trajectory_score([0.8], best) == pytest.approx(0.8)
    assert trajectory_score([0.3, 0.8, 0.0], best) == pytest.approx(0.4)  # 0.8 in the second turn
    assert trajectory_score([0.5, 0.8, 0.9], best) == pytest.approx(0.5)  # the first one was good enough
    last = Rules(turn_discount=0.5, turn_reward="last")
    assert trajectory_score([0.8, 0.4], last) == pytest.approx(0.2)
    assert trajectory_score([0.8, 0.4], Rules(turn_discount=1, turn_reward="last")) == pytest.approx(0.4)


def test_the_flags_are_attributes_of_args():
    assert Rules.of(SimpleNamespace()) == Rules() and Rules().max_turns == 3
    given = SimpleNamespace(
        max_turns=5, turn_reward="last", turn_discount=1, kernel_backend="triton", kernel_tasks="mine"
    )
    assert Rules.of(given) == Rules(5, "last", 1, "triton", "mine")
    assert Rules.of(SimpleNamespace(single_turn=True)).max_turns == 1


@pytest.mark.parametrize(
    "flags, said",
    [
        ({"max_turns": 0}, "--max-turns 0: should be a whole number from 1 on"),
        ({"max_turns": "many"}, "--max-turns many"),
        ({"max_turns": True}, "--max-turns True"),
        ({"turn_reward": "mean"}, "should be one of best, last"),
        ({"turn_discount": 0}, "above 0, and at most 1"),
        ({"turn_discount": 1.5}, "above 0, and at most 1"),
        ({"kernel_backend": "cuda"}, "should be one of cpp, triton"),
        ({"kernel_tasks": 3}, "should be one folder"),
        ({"kernel_backend": "triton", "kernel_gpu": -1}, "should be a GPU's number"),
        ({"kernel_backend": "triton", "kernel_gpu": "all"}, "should be a GPU's number"),
        ({"kernel_gpu": 0}, "of --kernel-backend triton alone"),
        ({"single_turn": True, "max_turns": 3}, "contradict"),
        ({"single_turn": 4}, "takes no value"),
    ],
)
def test_flags_that_make_no_sense_are_refused(flags, said):
    with pytest.raises(ValueError, match=said):
        Rules.of(SimpleNamespace(**flags))


class Author:
    """Answers what it is told, and remembers what it was asked."""

    def __init__(self, *answers, room=1000):
        self.answers, self.room, self.asked = list(answers), room, []

    async def __call__(self, messages):
        if sum(len(message["content"]) for message in messages) > self.room:
            raise ContextFull
        self.asked.append(list(messages))
        text = self.answers.pop(0)
        return (text, True) if isinstance(text, str) else (text[0], False)


def grader(**results):
    async def grade(code):
        return results[code]

    return grade


def block(code):
    return answer(code, "cpp")


def write(author, max_turns=3, **results):
    return asyncio.run(write_kernel(author, [{"role": "user", "content": "q"}], grader(**results), "cpp", max_turns))


def test_what_came_of_a_kernel_goes_into_the_next_turn():
    author = Author(block("a"), block("b"), block("c"))
    turns = write(author, a=BROKEN, b=WRONG, c=found(2.0))
    assert [turn["code"] for turn in turns] == ["a", "b", "c"] and [turn["correct"] for turn in turns] == [
        False,
        False,
        True,
    ]
    assert [turn["score"] for turn in turns] == [turn_score(each) for each in (BROKEN, WRONG, found(2.0))]
    said = [message["content"] for message in author.asked[2]]
    assert said == ["q", block("a"), heard(BROKEN), block("b"), heard(WRONG)]
    assert [message["role"] for message in author.asked[2]] == ["user", "assistant", "user", "assistant", "user"]


@pytest.mark.parametrize("max_turns", [1, 2])
def test_there_are_at_most_so_many_turns(max_turns):
    author = Author(*[block("a")] * 3)
    assert len(write(author, max_turns, a=found(1.0))) == max_turns == len(author.asked)


def test_an_answer_without_code_keeps_a_right_kernel_and_is_an_error_before():
    author = Author("let me think", block("a"), "that will do", block("b"))
    turns = write(author, max_turns=4, a=found(1.0), b=found(2.0))
    assert (
        [turn["code"] for turn in turns] == [None, "a"]
        and turns[0]["feedback"] == "no ```cpp block"
        and turns[0]["score"] == 0
    )
    assert "no ```cpp block" in author.asked[1][-1]["content"]


def test_an_answer_that_is_cut_off_is_the_last_and_worth_nothing():
    turns = write(Author(block("a"), (block("b"),)), a=found(1.0))
    assert [turn["feedback"] for turn in turns] == ["right, 1.0 times as fast", "cut off"] and turns[1]["score"] == 0
    assert trajectory_score([turn["score"] for turn in turns], Rules()) == turn_score(found(1.0))


def test_a_full_context_leaves_out_all_but_the_question_and_the_last_attempt():
    spoken = len("q") + len(block("a")) + len(heard(WRONG))
    author = Author(*[block("a")] * 3, room=spoken)
    turns = write(author, a=WRONG)
    assert len(turns) == 3 and [len(asked) for asked in author.asked] == [1, 3, 3]
    assert [message["content"] for message in author.asked[2]] == ["q", block("a"), heard(WRONG)]


def test_a_context_that_one_attempt_fills_ends_the_conversation():
    author = Author(block("a"), room=len("q"))
    assert len(write(author, a=WRONG)) == 1
    assert write(Author(room=0)) == []


OWN_TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


batch_size = 16


def get_inputs():
    return [torch.randn(batch_size, 64)]


def get_init_inputs():
    return []
"""


def test_a_folder_of_kernelbench_files_is_a_set_of_tasks(tmp_path):
    (tmp_path / "level2").mkdir()
    (tmp_path / "level2" / "19_ReLU.py").write_text(OWN_TASK)
    (tmp_path / "mine.py").write_text(
        OWN_TASK + '\n\n# Held out\nPROTOTYPE = "void forward()"\nHELD_OUT = [{"n": 3}]\nGPU = {}\n'
    )
    mine, relu = sorted(tasks.load(folder=str(tmp_path)), key=lambda task: task.level)
    assert (mine.name, mine.level, mine.prototype, tasks.shapes_of(mine)) == (
        "mine",
        1,
        "void forward()",
        ([{"n": 3}], {}),
    )
    assert (relu.name, relu.level, relu.prototype, tasks.shapes_of(relu)) == ("19_ReLU", 2, None, ([], {}))
    assert relu.shown == mine.shown == OWN_TASK and tasks.find("19_ReLU", folder=str(tmp_path)) == relu
    with pytest.raises(KeyError, match="no task relu"):
        tasks.find("relu", folder=str(tmp_path))


@pytest.mark.parametrize(
    "text, said", [("x = 1\n", "has no Model, get_init_inputs, get_inputs"), (None, "should have tasks")]
)
def test_a_folder_without_tasks_is_refused(tmp_path, text, said):
    if text:
        (tmp_path / "a.py").write_text(text)
    with pytest.raises(ValueError, match=said):
        tasks.load(folder=str(tmp_path))


def test_a_question_shows_the_task_and_none_of_its_held_out_shapes():
    for task in tasks.load():
        for backend in ("cpp", "triton"):
            asked = question(task.shown, contract(task, backend), backend)
            assert task.shown.strip() in asked and "Held out" not in asked and "HELD_OUT" not in asked
            assert (task.prototype in asked) == (backend == "cpp")


@pytest.mark.parametrize("backend", ["cpp", "triton"])
def test_data_has_conversations_that_end_in_kernels_and_a_question_for_each_task(tmp_path, backend):
    make_data = [sys.executable, str(ROOT / "examples" / "kernel_agent" / "make_data.py"), str(tmp_path), "--brief"]
    flags = ["--kernel-backend", backend, "--conversations", "50", "--tasks", "sum_rows", "matmul"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'python'}"}
    subprocess.run([*make_data, *flags], check=True, env=environment, stdout=subprocess.DEVNULL, timeout=60)

    def rows(name):
        return [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]

    assert [row["metadata"]["task"] for row in rows("test")] == ["sum_rows", "matmul"] and len(rows("rl")) == 80
    for row in rows("test"):
        assert row["prompt"] == [{"role": "user", "content": tasks.find(row["metadata"]["task"]).shown.strip()}]
    kernels = Counter()
    for row in rows("sft"):
        roles = [message["role"] for message in row["messages"]]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        said = [code_of(message["content"], backend) for message in row["messages"][1::2]]
        assert all(said[:-1]) and (said[-1] or row["messages"][-2]["content"].startswith("correct"))
        kernels.update(code for code in said if code)
    assert len(kernels) > 8  # forms, and mistakes in them
    words = json.loads((tmp_path / "words.json").read_text())
    assert len(set(words)) == len(words) > 20 and all(word.endswith("\n") for word in words)


def test_cuda_counts_the_gpus_whose_files_are_there(tmp_path):
    for name in ("nvidia3", "nvidia11", "nvidia7", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert gpu_numbers(tmp_path) == [3, 7, 11]
    assert [cuda_index(number, tmp_path) for number in (3, 7, 11)] == [0, 1, 2]

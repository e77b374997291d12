"""The examples whose turns call tools, trained for a few steps by their own run.sh: calls happen, tools' tokens are not trained, rewards differ."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, SLIME, metric

pytestmark = pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")
sys.path[:0] = [str(ROOT), str(ROOT / "python")]

CHECK = subprocess.run([SLIME, "sandbox", "--check"], capture_output=True, text=True, timeout=60)
needs_sandbox = pytest.mark.skipif(CHECK.returncode != 0, reason=CHECK.stderr.strip())

RL_STEPS = 2


def run_example(name, folder, *, sft_steps, flags=(), **variables):
    """The folder of the reinforcement run of examples/NAME/run.sh, made short."""
    steps = {"SFT_STEPS": str(sft_steps), "RL_STEPS": str(RL_STEPS)} | variables
    folders = {"RUNS": str(folder / "runs"), "DATA": str(folder / "data"), "SLIME_BINARY": str(SLIME)}
    command = [str(ROOT / "examples" / name / "run.sh"), "--num-threads", "1", *flags]
    done = subprocess.run(command, env=os.environ | steps | folders, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "Traceback" not in done.stdout + done.stderr, done.stdout[-4000:]
    return folder / "runs" / name


def samples(run_dir):
    return [json.loads(line) for file in sorted((run_dir / "rollouts").glob("*.jsonl")) for line in file.open()]


MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "system", "user", "assistant", "\\boxed{"]  # the tiny model's tokens from 256
TOOL_TURN = "\n<|im_start|>{role}\n{said}<|im_end|>\n<|im_start|>assistant\n"


def untrained_text(sample):
    """What the masked tokens of a response say. The tiny model's tokens below 256 are bytes."""
    response = sample["tokens"][-sample["response_length"] :]
    mask = sample["loss_mask"] or [1] * len(response)
    assert len(mask) == len(response) == len(sample["rollout_log_probs"])
    untrained = [token for token, trained in zip(response, mask, strict=True) if not trained]
    return b"".join(bytes([token]) if token < 256 else MARKS[token - 256].encode() for token in untrained).decode()


def assert_it_trained(run_dir, calls_of, shown_of, role="tool"):
    """`calls_of` gives a sample's calls of tools, `shown_of` what a call put into the conversation, as `role`."""
    assert len(metric(run_dir, "train/loss")) == RL_STEPS
    drawn = samples(run_dir)
    assert sum(len(calls_of(sample)) > 0 for sample in drawn) > len(drawn) / 10
    for sample in drawn:
        # What tools said is masked, each in its turn, and nothing else is; what followed the last turn is not in the conversation.
        turns = [TOOL_TURN.format(role=role, said=shown_of(call)) for call in calls_of(sample)]
        assert untrained_text(sample) in ("".join(turns), "".join(turns[:-1]))
        trained = sample["loss_mask"] or [1] * sample["response_length"]
        for mask, ours, theirs in zip(trained, sample["train_log_probs"], sample["rollout_log_probs"], strict=True):
            assert not mask or abs(ours - theirs) < 1e-3
    assert len({sample["reward"] for sample in drawn}) > 1
    fates = [json.loads(line.split(" ", 1)[1]) for line in (run_dir / "ledger.jsonl").read_text().splitlines()]
    ended = [fate["fate"] for fate in fates if fate.get("fate") not in (None, "dispatched")]
    groups = {(sample["group_index"], step) for step in range(RL_STEPS) for sample in step_samples(run_dir, step)}
    assert ended == ["trained"] * len(groups), ended
    return drawn


def step_samples(run_dir, step):
    return [json.loads(line) for line in (run_dir / "rollouts" / f"step_{step:06d}.jsonl").open()]


def test_search(tmp_path):
    run_dir = run_example("search", tmp_path, sft_steps=120)
    drawn = assert_it_trained(run_dir, lambda sample: sample["metadata"]["searches"], lambda search: search[1])
    corpus = {"{title}: {text}".format(**json.loads(line)) for line in Path(tmp_path / "data/search/corpus.jsonl").open()}
    found = {found for sample in drawn for _, found in sample["metadata"]["searches"]}
    assert found - {"nothing"} and found <= corpus | {"nothing"}


def test_bm25_ranks_by_rare_words_and_length():
    from examples.search.bm25 import Bm25

    index = Bm25(["town of bak: Rome", "town of lom: Oslo", "bak and lom are in a town of the south, far from here", ""])
    assert index.search("town of lom", limit=3) == [1, 2, 0]
    assert index.search("BAK") == [0]
    assert index.search("nowhere") == [] == Bm25([]).search("town")
    assert [index.search(word, limit=9) for word in ("rome", "south")] == [[0], [2]]


@needs_sandbox
@pytest.mark.nightly
def test_retool(tmp_path):
    run_dir = run_example("retool", tmp_path, sft_steps=150)
    drawn = assert_it_trained(run_dir, lambda sample: sample["metadata"]["runs"], lambda run: run[1])
    runs = [run for sample in drawn for run in sample["metadata"]["runs"]]
    printed = [(code, output) for code, output in runs if re.fullmatch(r"print\(\d+\*\d+\)", code) and output.isdigit()]
    assert printed
    for code, output in printed:
        assert str(eval(code.removeprefix("print"))) == output


@needs_sandbox
def test_what_the_interpreter_shows():
    from examples.retool.retool import LIMITS, block_of, shown
    from slime.agent.local_sandbox import run_code

    assert block_of("so ```python\nprint(1)\n``` then") == "print(1)"
    assert block_of("```python\nprint(1)") is None

    async def show(code, **limits):
        return shown(await run_code(code, limits=LIMITS | limits))

    assert asyncio.run(show("print(6 * 7)")) == "42"
    assert asyncio.run(show("6 * 7")) == "nothing"
    assert asyncio.run(show("1 / 0")) == "ZeroDivisionError: division by zero"
    assert asyncio.run(show("while True: pass", seconds=1)).startswith("was ended after 1 s")
    assert asyncio.run(show("print('<|im_end|>' * 9)")) == ("< |im_end|>" * 9)[:48]


needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")


sys.path.insert(0, str(ROOT / "tests" / "python"))
from torch_python import torch_python

needs_torch = pytest.mark.skipif(torch_python() is None, reason="no Python with torch here: apt-get install python3-torch")


@pytest.fixture
def grader(monkeypatch):
    """Grades C++ answers to the task matmul: the body of its function."""
    monkeypatch.setenv("KERNEL_AGENT_PYTHON", torch_python())
    monkeypatch.setenv("SLIME_BINARY", str(SLIME))
    from examples.kernel_agent import tasks
    from examples.kernel_agent.grade import close, grade

    task = tasks.find("matmul")

    async def judge(bodies, **how):
        try:
            codes = [f"{task.prototype} {{\n{body}\n}}" for body in bodies]
            return await asyncio.gather(*(grade(task, code, "cpp", **how) for code in codes))
        finally:
            await close()

    return lambda *bodies, **how: asyncio.run(judge(bodies, **how))


@needs_sandbox
@needs_compiler
@needs_torch
@pytest.mark.nightly
def test_kernel_agent(tmp_path):
    # One task is soon learned; what is sampled coldly has few slips of the pen.
    short = {"SFT_BATCH": "16", "RL_PROMPTS": "2", "RL_SAMPLES": "4", "DATA_FLAGS": "--tasks sum_rows"}
    short |= {"KERNEL_AGENT_PYTHON": torch_python(), "PYTHONPATH": f"{ROOT}:{ROOT / 'python'}"}
    run_dir = run_example("kernel_agent", tmp_path, sft_steps=120, flags=["--rollout-temperature", "0.5"], **short)
    drawn = assert_it_trained(
        run_dir, lambda sample: sample["metadata"]["turns"], lambda turn: turn["feedback"].partition(":")[0], "user"
    )
    turns = [turn for sample in drawn for turn in sample["metadata"]["turns"]]
    assert any(turn["correct"] and turn["speedup"] > 0 for turn in turns), {turn["feedback"] for turn in turns}
    for sample in drawn:
        worth = [turn["score"] * 0.9**at for at, turn in enumerate(sample["metadata"]["turns"])]
        assert sample["reward"] == pytest.approx(max(worth))
    table = [sys.executable, ROOT / "examples" / "kernel_agent" / "table.py", run_dir]
    done = subprocess.run(table, env=os.environ | short | {"SLIME_BINARY": str(SLIME)}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "| sum_rows | " in done.stdout, done.stderr


RIGHT = "for(int i=0;i<a_0;++i)for(int j=0;j<b_1;++j){out[i*b_1+j]=0;for(int p=0;p<a_1;++p)out[i*b_1+j]+=a[i*a_1+p]*b[p*b_1+j];}"
# What a kernel might try instead of being fast, and what is said about it.
HOSTILE = {
    "ends early": ('for(int i=0;i<a_0;++i)__builtin_puts("0.5");__builtin_exit(0);', "wrong result"),
    "says it is right": ('__builtin_puts("correct, 99.0 times as fast");__builtin_exit(0);', "wrong result"),
    "does nothing": ("", "wrong result"),
    "computes the first time only": (f"static int calls=0;if(calls++)return;{RIGHT}", "wrong result"),
    "leaves out a row": (RIGHT.replace("i=0", "i=1"), "wrong result"),
    "never ends": ("for(;;)asm volatile(\"\");", "ended"),
    "crashes": ("*(volatile int*)0=1;", "signal"),
    "starts somebody": (f"int start();if(start()<0)return;{RIGHT}}}\n#include <unistd.h>\nint start(){{return fork();", "wrong result"),
    "has a main of its own": ("} int main() {", "does not"),
}


@needs_sandbox
@needs_compiler
@needs_torch
def test_a_speed_up_cannot_be_forged(grader):
    verdicts = grader(*(body for body, _ in HOSTILE.values()), rounds=1)
    for (way, (_, said)), verdict in zip(HOSTILE.items(), verdicts, strict=True):
        assert not verdict.correct and verdict.speedup == 0 == verdict.reward and said in verdict.feedback, (way, verdict)


@needs_sandbox
@needs_compiler
@needs_torch
def test_every_form_of_a_kernel_is_right_and_every_mistake_is_found(monkeypatch):
    monkeypatch.setenv("KERNEL_AGENT_PYTHON", torch_python())
    monkeypatch.setenv("SLIME_BINARY", str(SLIME))
    from examples.kernel_agent import tasks
    from examples.kernel_agent.forms import FORMS, forms_of
    from examples.kernel_agent.grade import close, grade

    async def judge(task, form, mistake, code):
        verdict = await grade(task, code, "cpp", timed=False, held_out=mistake is None)
        stage = {None: "correct", "compile": "compile", "wrong": "wrong"}[mistake]
        return None if verdict.stage == stage else (task.name, form, mistake, verdict)

    async def judge_all():
        forms = [(task, *each) for task in map(tasks.find, FORMS) for each in enumerate(forms_of(task, "cpp").items())]
        kernels = [
            (task, form, mistake, code)
            for task, number, (form, kinds) in forms
            for mistake, code in kinds.items()
            if mistake is None or number == 0
        ]
        try:
            return [wrong for wrong in await asyncio.gather(*(judge(*kernel) for kernel in kernels)) if wrong]
        finally:
            await close()

    assert asyncio.run(judge_all()) == []


@pytest.mark.nightly
def test_mcp_tools(tmp_path):
    # What is sampled coldly is right more often: one answer in twenty rather than one in fifty.
    run_dir = run_example("mcp_tools", tmp_path, sft_steps=500, flags=["--rollout-temperature", "0.5"])
    drawn = assert_it_trained(run_dir, lambda sample: sample["metadata"]["calls"], lambda call: call[1])
    sys.path.insert(0, str(ROOT / "examples" / "mcp_tools"))
    from server import prices

    asked = [(sample, call) for sample in drawn for call in sample["metadata"]["calls"] if call[1].isdigit()]
    assert asked
    for sample, (call, said) in asked:
        call = json.loads(call)
        if call["name"] == "price":
            shop = int(sample["metadata"]["servers"][0][2])
            assert prices(shop)[call["arguments"]["item"]] == int(said)


SERVER = [sys.executable, str(ROOT / "examples" / "mcp_tools" / "server.py")]


def test_the_client_lists_and_calls_the_tools_of_a_server():
    from examples.mcp_tools.stdio_client import McpError, StdioClient

    async def talk():
        async with StdioClient([*SERVER, "calculator"]) as client:
            assert [tool["name"] for tool in client.tools] == ["multiply"]
            assert client.tools[0]["inputSchema"]["required"] == ["a", "b"]
            answers = await asyncio.gather(*(client.call("multiply", {"a": i, "b": i}) for i in range(50)))
            assert answers == [str(i * i) for i in range(50)]
            assert await client.call("multiply", {"a": 1}) == "needs: a, b"
            with pytest.raises(McpError, match="there is no divide"):
                await client.call("divide", {})
        assert client.is_over

    asyncio.run(talk())


# Servers that do not keep to the protocol, and what is raised.
BROKEN = {
    "import sys; sys.exit(3)": "has ended",
    "print('no json', flush=True); input()": "has ended",
    "import time; time.sleep(60)": "TimeoutError",
    "import json; n = json.loads(input())['id']; print(json.dumps({'id': n, 'error': {'message': 'not today'}}))": "not today",
}


@pytest.mark.parametrize("code", BROKEN)
def test_a_server_that_breaks_the_protocol_is_an_error(code):
    from examples.mcp_tools.stdio_client import StdioClient

    async def talk():
        async with StdioClient([sys.executable, "-c", code], seconds=3):
            pass

    with pytest.raises(Exception) as caught:
        asyncio.run(talk())
    assert BROKEN[code] in f"{type(caught.value).__name__}: {caught.value}"

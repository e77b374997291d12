"""Every command of README.md and docs/*.md is run here, or listed with its reason in documented_commands.py.

A command that trains is run with --dry-run, which checks all it names and loads nothing; one that serves is started on a free port, asked
what the page asks, and ended; all others are run as they are.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import ROOT, SLIME
from documented_commands import COVERED, LISTED, PAGES, REST, blocks, commands, reason_of, typed

RUN = [command for command in commands() if reason_of(command) is None]
SERVES = re.compile(r"(build/release/)?slime (serve|router|view|buffer) ")
TRAINS = re.compile(r"(\w+=\S+ )*((build/release/)?slime train|scripts/run-)")
UNTIL_READY_S = 120
EXTRA_FILES = {
    "loop.py": "while True:\n    pass\n",
    "kernel.cpp": "int main() { return 0; }\n",
    "my_generator.py": 'TASK_TYPE = "my-task"\n\n\ndef run_rollout(data):\n    pass\n',
    "responses.jsonl": '{"response": "It is \\\\boxed{72}.", "label": "72"}\n',
    "my_generate.py": "async def generate(args, sample, sampling_params):\n    return sample\n",
    "kept.jsonl": '{"prompt": "1+1=", "response": "2"}\n' * 4,
    "talks.jsonl": '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}\n' * 4,
    "pairs.jsonl": '{"prompt": "1+1=", "chosen": "2", "rejected": "3"}\n' * 4,
    "verl.jsonl": '{"prompt": [{"role": "user", "content": "1+1="}], "reward_model": {"ground_truth": "2"}}\n' * 128,
    "my_reward.py": "def reward(args, sample, **kwargs):\n    return 1.0\n",
}


@pytest.fixture(scope="module")
def place(work, tmp_path_factory):
    """A folder as a reader has it: a model, prompts, a run of three steps, the files that pages show, the program."""
    folder = tmp_path_factory.mktemp("documents")
    make_model = [sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model", "--hidden", "128", "--positions", "40960"]
    subprocess.run(make_model, check=True, stdout=subprocess.DEVNULL)
    rows = (work / "data" / "rl.jsonl").read_text()
    (folder / "prompts.jsonl").write_text(rows)
    for page in PAGES:
        for _, block in blocks(page.read_text()):
            named = re.match(r"(?:#|//) (\w+\.(?:py|cpp))\b", block)
            if named:
                (folder / named[1]).write_text(block + "\n")
    for name, text in EXTRA_FILES.items():
        if not (folder / name).exists():
            (folder / name).write_text(text)
    for name in ("scripts", "tools", "examples", "tests", "python", "train.py", "train_async.py"):
        (folder / name).symlink_to(ROOT / name)
    for program in ("bin/slime", "build/release/slime"):
        (folder / program).parent.mkdir(parents=True)
        (folder / program).symlink_to(SLIME)
    own = {**REST, "--num-rollout": "3", "--run-dir": "runs/a", "--save-interval": "1", "--keep-checkpoints": "5", "--device": "cpu"}
    words = [str(SLIME), "train", "--apply-chat-template", *(word for pair in own.items() for word in pair)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def environment_of(place):
    return {
        **os.environ,
        "PATH": f"{place / 'bin'}{os.pathsep}{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}",
        "SLIME_BINARY": str(SLIME),
        "PYTHONPATH": str(ROOT / "python"),
    }


def run_in(place, text):
    shell = ["bash", "-o", "pipefail", "-c", text]
    return subprocess.run(
        shell, cwd=place, env=environment_of(place), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )


def check_command(place, command):
    """What is wrong with it; None where nothing is."""
    text = typed(command)
    trains = TRAINS.match(text) and "--help" not in text
    if trains and "--dry-run" not in text:
        text += " --dry-run"
    done = run_in(place, text)
    output = done.stdout + done.stderr
    if trains:
        if done.returncode == 0 and "A run would begin" in output:
            return None
    elif done.returncode == 0 or (command.text.startswith("slime sandbox") and '"ending":"time"' in output.replace(" ", "")):
        return None
    return f"{command}\n  typed here: {text}\n  exit code {done.returncode}\n{output[-2000:]}"


def test_each_listed_command_is_in_a_page():
    for page, start, _ in LISTED:
        assert any(c.text.startswith(start) and page in ("", c.page) for c in commands()), (page, start)


def test_tests_that_are_named_as_covering_exist():
    for _, _, reason in LISTED:
        for file in re.findall(r"tests/\w+/\w+\.py", reason):
            assert (ROOT / file).is_file(), file


def test_there_are_commands():
    assert len(RUN) > 80
    assert len([reason for reason in map(reason_of, commands()) if reason and not reason.startswith(COVERED)]) < 80


@pytest.mark.parametrize("page", sorted({command.page for command in RUN if not SERVES.match(command.text) and "curl" not in command.text}))
def test_the_commands_of_a_page_run(place, page):
    own = [c for c in RUN if c.page == page and not SERVES.match(c.text) and not c.text.startswith("curl")]
    if page == "docs/sandbox.md" and run_in(place, "slime sandbox --check").returncode != 0:
        pytest.skip("no sandbox here")
    wrong = []
    for command in own:
        if command.text.startswith("slime train") and "--report-to" in command.text and shutil.which("wandb") is None:
            continue  # tests of trackers give it a package
        problem = check_command(place, command)
        if problem:
            wrong.append(problem)
    assert not wrong, "\n\n".join(wrong)


class Serving:
    """A command that serves, on a free port of loopback."""

    def __init__(self, place, text):
        words = shlex.split(text.removesuffix("&"))
        words[0] = str(SLIME)
        if "--port" in words:
            at = words.index("--port")
            del words[at : at + 2]
        words += ["--port", "0"] + (["--device", "cpu"] if words[1] == "serve" else [])
        self.process = subprocess.Popen(words, cwd=place, env=environment_of(place), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with ThreadPoolExecutor(1) as reader:
            self.url = reader.submit(self.read_url).result(UNTIL_READY_S)

    def read_url(self):
        said = ""
        for line in self.process.stdout:
            said += line
            if found := re.search(r"http://[\w.]+:\d+", line):
                return found[0]
        raise AssertionError(said)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)
        self.process.stdout.close()


def ask(url, text):
    """The answer's text to a curl command of a page; raises for a status that is no success."""
    words = shlex.split(text)[1:]
    headers, data, method, address = {}, None, None, None
    while words:
        word = words.pop(0)
        if word == "-H":
            name, value = words.pop(0).split(": ", 1)
            headers[name] = value
        elif word in ("-d", "--data-binary"):
            data = words.pop(0).encode()
        elif word == "-X":
            method = words.pop(0)
        else:
            address = word
    request = urllib.request.Request(re.sub(r"http://127.0.0.1:\d+", url, address), data, headers, method=method)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read().decode()


def first_answer(url, text):
    """What `ask` gives once the servers behind a router count as healthy."""
    until = time.monotonic() + UNTIL_READY_S
    while True:
        try:
            return ask(url, text)
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > until:
                raise
            time.sleep(0.1)


@pytest.mark.parametrize("page", sorted({c.page for c in RUN if SERVES.match(c.text)} - {"docs/router.md"}))
def test_a_page_that_serves_answers_what_it_asks(place, page):
    own = [c for c in RUN if c.page == page]
    asked = [c for c in own if c.text.startswith("curl") and "update_weights_from_tensor" not in c.text]
    for index, command in enumerate(c for c in own if SERVES.match(c.text)):
        with Serving(place, typed(command)) as server:
            for question in asked if index == 0 else []:
                try:
                    assert ask(server.url, typed(question)) is not None
                except urllib.error.HTTPError as error:
                    pytest.fail(f"{question}\n{error.code} {error.read().decode()}")


def test_the_routers_page_puts_two_servers_behind_one_address(place):
    own = [c for c in RUN if c.page == "docs/router.md"]
    first, second, router = [typed(c) for c in own if SERVES.match(c.text)]
    [question] = [c for c in own if c.text.startswith("curl")]
    with Serving(place, first) as one, Serving(place, second) as other:
        words = re.sub(r"http://127.0.0.1:30001 http://127.0.0.1:30002", f"{one.url} {other.url}", router)
        with Serving(place, words) as door:
            assert "text" in json.loads(first_answer(door.url, question.text))

"""`slime serve` on a model that recites (recite.py), for the tests in this folder: one file for each client or framework.

    python -m pytest tests/clients/test_with_openai.py

A file says what the model answers in ANSWERS, {name: text}: a prompt in which say("name") stands gets that text. $SLIME names another program
than build/release/slime, $SLIME_AGENT_PYTHON an interpreter with transformers where this one has none. Files whose package is not installed are
skipped, and say so; docs/clients.md says which versions were tried.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from recite import write_model

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "http"))
from server_process import Server  # noqa: E402

__all__ = ["KEY", "MODEL", "call", "grammars", "say", "server", "thought", "training"]

MODEL, KEY = "recite", "none"


def say(name):
    """What a message holds that is to be answered by ANSWERS[name]."""
    return f"[say:{name}]"


def call(name, /, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def thought(text, answer=""):
    return f"<think>\n{text}\n</think>\n\n{answer}"


@pytest.fixture(scope="module")
def model(request):
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, request.module.ANSWERS)
        yield folder


@pytest.fixture(scope="module")
def server(model):
    """`url` has no slash and no /v1 at its end."""
    with Server(model, "--served-model-name", MODEL, "--kv-cache-gib", "0.5", env={"OMP_NUM_THREADS": "1"}) as started:
        yield started


@pytest.fixture(scope="module")
def grammars(server):
    """The server, which can bind answers to a grammar."""
    messages = [{"role": "user", "content": "x"}]
    status, answer = server.post("/v1/chat/completions", {"model": MODEL, "messages": messages, "max_tokens": 4, "regex": "(yes|no)"})
    assert status == 200, f"this server binds no answer to a grammar: {answer}"
    return server


class Training:
    """A session of training, in a process of slime.agent's. `open(name)`: its name is the client's API key; `finish(name)`: its figures, after each
    sampled token was found in exactly one sample, behind exactly what it was sampled behind. `kind` "sessions": the server keeps them; "adapters":
    slime.agent's adapters do, in front of the server."""

    def __init__(self, kind, python, model, url):
        command = [python, str(ROOT / "tests" / "clients" / "training_door.py"), kind, str(model), url]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started = self._read()
        self.openai_url, self.anthropic_url = started["openai"], started["anthropic"]

    def _read(self):
        line = self._process.stdout.readline()
        assert line, "the process of the adapters has ended"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer

    def _ask(self, **question):
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._read()

    def open(self, name):
        self._ask(open=name)

    def finish(self, name):
        return self._ask(finish=name)

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=30)


@pytest.fixture(scope="module", params=["sessions", pytest.param("adapters", marks=pytest.mark.nightly)])
def training(request, model, server):
    python = sys.executable
    if request.param == "adapters":
        python = os.environ.get("SLIME_AGENT_PYTHON") or (sys.executable if importlib.util.find_spec("transformers") else None)
        if not python:
            pytest.skip("slime.agent's adapters read tokenizers with transformers, which is not installed")
    else:
        status, answer = server.get("/sessions")
        assert status == 200, f"this server keeps no sessions: {answer}"
    door = Training(request.param, python, model, server.url)
    yield door
    door.close()

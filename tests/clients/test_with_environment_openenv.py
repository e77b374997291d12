"""--environment openenv:...: the environment of docs/environments.md, in the plug-in host and behind its server."""

import os
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from environment_run import module_of_docs, train

pytest.importorskip("openenv.core", reason="openenv is not installed")

SERVER = """
import sys
import uvicorn
from echo_game import EchoGame, Heard, Say
from openenv.core.env_server import create_fastapi_app
EchoGame.SUPPORTS_CONCURRENT_SESSIONS = True
uvicorn.run(create_fastapi_app(EchoGame, Say, Heard, max_concurrent_envs=64), port=int(sys.argv[1]), log_level="warning")
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "echo_game.py").write_text(module_of_docs("echo_game.py"))
    return tmp_path


def test_a_class_trains(folder):
    assert all("rollout/reward/turns" in step for step in train(folder, "openenv:echo_game:EchoGame", {}))


def test_a_server_trains(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(port)], env={**os.environ, "PYTHONPATH": str(folder)})
    try:
        deadline = time.monotonic() + 300
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < deadline, "the server does not start"
                time.sleep(0.2)
        assert all("rollout/reward/turns" in step for step in train(folder, f"openenv:http://127.0.0.1:{port}", {}))
    finally:
        server.kill()
        server.wait()

"""--environment harbor:FOLDER: tasks with a verifier, an agent outside of the box, and a box of bubblewrap in the place of a container."""

import pytest
from environment_run import train

pytest.importorskip("harbor", reason="harbor is not installed")

BOX = '''
"""An environment of Harbor without containers: commands run in bubblewrap, which sees /usr and four folders of its own."""
import asyncio
import shutil
import tempfile
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

FOLDERS = ("app", "tests", "logs", "tmp")


class Box(BaseEnvironment):
    @staticmethod
    def type():
        return "box"

    @property
    def capabilities(self):
        return EnvironmentCapabilities()

    def _validate_definition(self):
        pass

    async def start(self, force_build):
        self.root = Path(tempfile.mkdtemp(prefix="box-"))
        for name in ("app", "tests", "tmp", "logs/agent", "logs/verifier", "logs/artifacts"):
            (self.root / name).mkdir(parents=True)

    async def stop(self, delete):
        shutil.rmtree(self.root, ignore_errors=True)

    def _inside(self, path):
        return self.root / str(path).lstrip("/")

    async def upload_file(self, source_path, target_path):
        self._inside(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, self._inside(target_path))

    async def upload_dir(self, source_dir, target_dir):
        shutil.copytree(source_dir, self._inside(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path, target_path):
        shutil.copy(self._inside(source_path), target_path)

    async def download_dir(self, source_dir, target_dir):
        shutil.copytree(self._inside(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None):
        words = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
        for link in ("bin", "lib", "lib64"):
            words += ["--symlink", f"usr/{link}", f"/{link}"]
        for name in FOLDERS:
            words += ["--bind", str(self.root / name), f"/{name}"]
        words += ["--chdir", cwd or "/app", "bash", "-c", command]
        child = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        output, error = await child.communicate()
        return ExecResult(stdout=output.decode(), stderr=error.decode(), return_code=child.returncode)
'''

AGENT = '''
"""An agent of Harbor that asks the model once, and writes its answer into a file."""
import json
import shlex
import asyncio
import urllib.request

from harbor.agents.agent_auth_resolution import ModelConnectionSpec
from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.llms.litellm_config import LITELLM_BASE_URL_OVERRIDES


class Writer(BaseAgent):
    capabilities = AgentCapabilities(base_url=True)
    MODEL_CONNECTION = ModelConnectionSpec(base_url_overrides=LITELLM_BASE_URL_OVERRIDES)

    @staticmethod
    def name():
        return "writer"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    def _ask(self, instruction):
        asked = json.dumps({"messages": [{"role": "user", "content": instruction}]}).encode()
        request = urllib.request.Request(f"{self._base_url}/chat/completions", asked, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)["choices"][0]["message"]["content"] or ""

    async def run(self, instruction, environment, context):
        text = await asyncio.to_thread(self._ask, instruction)
        await environment.exec(f"printf %s {shlex.quote(text)} > /app/answer.txt")
'''

TEST = """#!/bin/bash
test "$(head -c 1 /app/answer.txt)" = LETTER && right=1 || right=0
echo "{\\"reward\\": $right, \\"bytes\\": $(wc -c < /app/answer.txt)}" > /logs/verifier/reward.json
"""


def write_task(folder, letter):
    (folder / "tests").mkdir(parents=True)
    (folder / "environment").mkdir()
    (folder / "environment" / "Dockerfile").write_text("FROM scratch\n")
    (folder / "instruction.md").write_text(f"Say {letter}.")
    (folder / "task.toml").write_text(f'version = "1.0"\n[task]\nname = "letters/{letter}"\n[environment]\nallow_internet = true\n')
    (folder / "tests" / "test.sh").write_text(TEST.replace("LETTER", letter))


def test_tasks_train(tmp_path):
    for letter in "abcd":
        write_task(tmp_path / "tasks" / letter, letter)
    (tmp_path / "box.py").write_text(BOX)
    (tmp_path / "writer.py").write_text(AGENT)
    settings = {"agent": {"import_path": "writer:Writer"}, "environment": {"import_path": "box:Box"}}
    steps = train(tmp_path, f"harbor:{tmp_path / 'tasks'}", settings)
    assert all("rollout/reward/bytes" in step for step in steps)

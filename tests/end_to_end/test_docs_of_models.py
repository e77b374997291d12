"""Commands of docs/chat.md, docs/evaluation.md and docs/export.md, as they stand there."""

import os
import subprocess

import documented_commands
import pytest
from conftest import SLIME

TOOLS = '[{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}]'


def commands(page):
    """Those of our program that ask nobody on the network."""
    texts = [command.text for command in documented_commands.commands() if command.page == f"docs/{page}"]
    return [text for text in texts if text.startswith("slime ") and "http" not in text]


@pytest.mark.parametrize("page", ["chat.md", "evaluation.md", "export.md"])
def test_commands_of_the_page_work(page, work, reference, tmp_path):
    (tmp_path / "my-model").symlink_to(work / "model")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "first").symlink_to(reference)
    (tmp_path / "test.jsonl").symlink_to(work / "data" / "test.jsonl")
    (tmp_path / "tools.json").write_text(TOOLS)
    (tmp_path / "questions.txt").write_text("12+34=\n50-8=\n")
    (tmp_path / "slime").symlink_to(SLIME)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    found = commands(page)
    assert len(found) >= 4
    for line in found:
        # Random weights end an answer by chance alone.
        short = line.replace("slime chat", "slime chat --set max_tokens=8").replace("slime eval my", "slime eval --max-tokens 8 my")
        short = short.replace("slime eval runs", "slime eval --max-tokens 8 runs")
        done = subprocess.run(short, shell=True, cwd=tmp_path, env=path, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"

"""Commands of docs/chat.md, docs/evaluation.md and docs/export.md, as they stand there."""

import os
import re
import subprocess

import pytest
from conftest import ROOT, SLIME

TOOLS = '[{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}]'


def commands(page):
    """Lines of code blocks that begin a program of ours and ask nobody on the network."""
    blocks = re.findall(r"^```\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if re.match(r"(printf .* \| )?slime ", line) and "http" not in line]


@pytest.mark.parametrize("page", ["chat.md", "evaluation.md", "export.md"])
def test_commands_of_the_page_work(page, work, reference, tmp_path):
    (tmp_path / "my-model").symlink_to(work / "model")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "first").symlink_to(reference)
    (tmp_path / "test.jsonl").symlink_to(work / "data" / "test.jsonl")
    (tmp_path / "tools.json").write_text(TOOLS)
    (tmp_path / "slime").symlink_to(SLIME)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    found = commands(page)
    assert len(found) >= 5
    for line in found:
        # Random weights end an answer by chance alone.
        short = line.replace("slime chat", "slime chat --set max_tokens=8").replace("slime eval my", "slime eval --max-tokens 8 my")
        short = short.replace("slime eval runs", "slime eval --max-tokens 8 runs")
        done = subprocess.run(short, shell=True, cwd=tmp_path, env=path, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"

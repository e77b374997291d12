"""Every example of docs/agents.md, as it stands there: generate functions in a live run, the others by themselves."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from conftest import ROOT, SLIME, metric, run_slime, train_command

PAGE = (ROOT / "docs" / "agents.md").read_text()
EXAMPLES = {name: (flags, code) for code, name, flags in re.findall(r"```python\n(# (\w+\.py)(?:: slime train \.\.\.([^\n]*))?\n.*?)```", PAGE, re.S)}
IN_A_RUN = {name: example for name, example in EXAMPLES.items() if example[0]}
ALONE = {name: code for name, (flags, code) in EXAMPLES.items() if not flags}
NEEDS_SANDBOX = {"in_a_sandbox.py", "my_harness.py"}


def rows_of(run_dir):
    return [json.loads(line) for file in sorted((run_dir / "rollouts").glob("*.jsonl")) for line in file.open()]


def trained_turns(row):
    mask = row["loss_mask"]
    return sum(now and not before for before, now in zip([0, *mask], mask))


SHOWN = {
    # Untrained, the model ends few of its messages: those conversations go on.
    "greeter.py": lambda rows: all(trained_turns(row) == min(3, row["reward"] + (row["status"] == "truncated")) for row in rows),
    "in_a_session.py": lambda rows: all(row["reward"] == 5 and "go on" in row["prompt"] + row["response"] for row in rows if trained_turns(row) == 2),
    "calls_openai.py": lambda rows: all(row["reward"] == 5 and "go on" in row["prompt"] + row["response"] for row in rows if trained_turns(row) == 2),
    "calls_anthropic.py": lambda rows: all(1 <= row["reward"] == sum(row["loss_mask"]) <= 4 for row in rows),
}


def test_all_examples_are_here():
    assert PAGE.count("```python") == len(EXAMPLES) == len(IN_A_RUN) + len(ALONE) and set(IN_A_RUN) == set(SHOWN)


@pytest.mark.parametrize("name", IN_A_RUN)
def test_an_example_runs_in_a_run(work, name):
    pytest.importorskip("transformers", reason="chat templates need transformers: tools/build/requirements/agents.txt")
    flags, code = IN_A_RUN[name]
    run_dir, folder = work / f"agents-{name}", work / f"agents-{name}-code"
    folder.mkdir()
    (folder / name).write_text(code)
    command = train_command(work, run_dir, rollouts=2, extra=[*shlex.split(flags), "--plugin-python", sys.executable])
    done = run_slime(command, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout
    assert len(metric(run_dir, "train/loss")) == 2
    rows = rows_of(run_dir)
    assert len(rows) >= 2 * 16 and SHOWN[name](rows)


@pytest.mark.parametrize("name", ALONE)
def test_an_example_runs_by_itself(tmp_path, name):
    if name in NEEDS_SANDBOX and run_slime([str(SLIME), "sandbox", "--check"]).returncode != 0:
        pytest.skip("no sandbox on this machine: slime sandbox --check")
    (tmp_path / name).write_text(ALONE[name])
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SLIME_BINARY": str(SLIME)}
    done = subprocess.run([sys.executable, name], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr

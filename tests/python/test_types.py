"""Annotations of `import slime`: mypy reads the package, and what a script gets is what the page says."""

import os
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python"
SCRIPT = """
import slime

with slime.start("model", lr=1e-6) as s:
    a: slime.Session = s
    b: list[slime.Group] = s.generate(["x"], n=2)
    c: slime.GrpoStep = next(s.grpo(["x"], lambda sample: 1.0))
    d: float = c.reward
e: slime.Run = slime.start("model", prompt_data="x.jsonl")
f: slime.Run = slime.start(["--config", "run.yaml"])
g: slime.TrainingRun = slime.train(["--config", "run.yaml"])
wrong: int = s.config.hf_checkpoint and s.save("x")
"""


def mypy(*arguments):
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--no-error-summary", *arguments]
    environment = {**os.environ, "MYPYPATH": str(PACKAGE)}
    return subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE, env=environment, check=False)


def test_the_package_has_no_error_of_types(tmp_path):
    done = mypy("--cache-dir", str(tmp_path / "cache"), "slime/loop")
    assert done.returncode == 0, done.stdout


def test_a_script_gets_the_types_of_the_page(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = mypy("--cache-dir", str(tmp_path / "cache"), str(tmp_path / "script.py"))
    lines = done.stdout.splitlines()
    assert len(lines) == 1 and 'expression has type "Any | Path", variable has type "int"' in lines[0].replace("Union[Any, Path]", "Any | Path"), done.stdout

"""`slime train --environment` for a few steps, on a tiny model, in the interpreter that has the framework."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SLIME = os.environ.get("SLIME", str(ROOT / "build" / "release" / "slime"))
WORDS = [*"abcdefgh", "Say", " "]


def train(folder, environment, arguments, *extra, num_rollout=2):
    """The steps' metrics. `folder` has the environment's module, and gets model and run."""
    subprocess.run([sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model", "--words", *WORDS], check=True, stdout=subprocess.DEVNULL)
    command = [
        SLIME, "train", "--hf-checkpoint", str(folder / "model"), "--environment", environment, "--environment-args", json.dumps(arguments),
        "--plugin-python", sys.executable, "--rollout-batch-size", "2", "--n-samples-per-prompt", "4", "--global-batch-size", "8",
        "--rollout-max-response-len", "4", "--num-rollout", str(num_rollout), "--lr", "1e-3", "--fp32", "--num-threads", "1", "--device", "cpu",
        "--use-dynamic-batch-size", "--max-tokens-per-gpu", "4096", "--run-dir", str(folder / "run"), *extra,
    ]  # fmt: skip
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, env={**os.environ, "PYTHONPATH": path})
    logs = "\n".join(file.read_text() for file in (folder / "run" / "plugin").glob("*.log")) if (folder / "run").exists() else ""
    assert done.returncode == 0, f"{done.stderr}\n{logs[-5000:]}"
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "rollout/raw_reward" in line]
    assert len(steps) == num_rollout
    for step in steps:
        assert step["rollout/untrained_sampled_tokens"] == 0, "each sampled token is in exactly one sample"
    return steps


def module_of_docs(name):
    """A Python example of docs/environments.md, by the name of its file."""
    text = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    return text.split(f"```python\n# {name}", 1)[1].split("\n", 1)[1].split("```", 1)[0]

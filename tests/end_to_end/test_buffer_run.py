"""scripts/run-buffer.sh: a generator draws beside the run, its rollouts wait in `slime buffer`, whole groups of them are trained."""

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request

from conftest import ROOT, SLIME, metric, weights

GENERATOR = """
from slime_plugins.rollout_buffer.generator import BaseGenerator, query_single_turn

TASK_TYPE = "lengths"

def run_rollout(data):
    generator = BaseGenerator.of(data)
    generator.entry(data["input_file"], query_single_turn, lambda item: float(len(item["messages"][-1]["content"]) % 3), num_epoch=100)
"""


def launch(work, folder, rollouts):
    shape = json.loads((work / "model" / "config.json").read_text())
    (folder / "lengths.py").write_text(GENERATOR)
    problems = folder / "data" / "dapo-math-17k" / "dapo-math-17k.jsonl"
    problems.parent.mkdir(parents=True, exist_ok=True)
    problems.write_bytes((work / "data" / "rl.jsonl").read_bytes())
    words = {
        "num-layers": shape["num_hidden_layers"], "hidden-size": shape["hidden_size"], "ffn-hidden-size": shape["intermediate_size"],
        "num-attention-heads": shape["num_attention_heads"], "num-query-groups": shape["num_key_value_heads"],
        "kv-channels": shape["head_dim"], "vocab-size": shape["vocab_size"], "rotary-base": int(shape["rope_theta"]),
        "hf-checkpoint": work / "model", "num-rollout": rollouts, "rollout-batch-size": 4,
        "n-samples-per-prompt": 4, "rollout-max-response-len": 6, "global-batch-size": 16, "lr": 1e-3, "num-threads": 1, "save-interval": 1,
    }  # fmt: skip
    flags = [word for name, value in words.items() for word in ("--" + name, str(value))]
    given = {"SLIME_BINARY": str(SLIME), "RUNS": str(folder / "runs"), "TASK": "lengths"}
    given |= {"DATA": str(folder / "data"), "GENERATOR": str(folder / "lengths.py")}
    done = subprocess.run(
        [ROOT / "scripts" / "run-buffer.sh", "qwen3-0.6B", *flags, "--fp32"],
        capture_output=True, text=True, timeout=300, env=os.environ | given, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "runs" / "Qwen3-0.6B-buffer"


def drawn(run_dir):
    return [json.loads(line) for file in sorted((run_dir / "rollouts").glob("step_*.jsonl")) for line in file.open()]


def is_gone(url):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url + "/health", timeout=5).close()
        except urllib.error.URLError:
            return True
        time.sleep(0.1)
    return False


def test_rollouts_of_a_generator_are_trained_over_a_restart(work, tmp_path):
    run_dir = launch(work, tmp_path, rollouts=2)
    before = weights(run_dir)
    log = tmp_path / "runs" / "Qwen3-0.6B-buffer.rollouts.log"
    assert is_gone(re.search(r"ready: (\S+)", log.read_text())[1]), "the buffer ends with the trainer"
    assert launch(work, tmp_path, rollouts=4) == run_dir
    rows = drawn(run_dir)
    assert len(metric(run_dir, "train/loss")) == 4 and len(rows) == 4 * 16
    assert weights(run_dir) != before
    groups = {}
    for row in rows:
        assert row["reward"] == len(row["response"]) % 3
        assert sum(row["loss_mask"] or [1] * row["response_length"]) > 0
        groups.setdefault(row["group_index"], []).append(row["metadata"]["instance_id"])
    assert all(len(group) == 4 and len(set(group)) == 1 for group in groups.values())
    assert len({row["prompt"] for row in rows}) == len(rows), "no rollout is trained twice"

"""Every example of docs/plugins.md, as it stands there, in a live run."""

import json
import re
import shlex
import shutil
import sys

import pytest
from conftest import ROOT, metric, run_slime, train_command

pytestmark = pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")

PAGE = (ROOT / "docs" / "plugins.md").read_text()
ON_PAGE = {
    name: (flags, code)
    for code, name, flags in re.findall(r"```python\n(# (\w+\.py): slime train \.\.\.([^\n]*)\n.*?)```", PAGE, re.S)
}
# Run by tests of their own: test_generate.py, and those that need torch, test_trainer_functions.py.
ELSEWHERE = {"my_generate.py", "my_loss.py", "my_hooks.py", "my_advantages.py", "my_data.py", "my_correction.py", "my_reducer.py"}
EXAMPLES = {name: example for name, example in ON_PAGE.items() if name not in ELSEWHERE}

# What a run shows when the example did its work.
SHOWN = {
    "my_rewards.py": lambda run: all(0 <= each <= 1 for each in metric(run, "rollout/raw_reward")),
    "half_math.py": lambda run: set(rewards(run)) <= {0, 0.5},
    "best_of.py": lambda run: all(max(each) == 1 for each in by_group(run)),
    "cut_reasoning.py": lambda run: {row["metadata"]["begun_at"] for row in samples(run)} == {0, 1},
    "traced.py": lambda run: metric(run, "rollout/trace/draw/count") == [16, 16],
    "not_all_long.py": lambda run: sum(metric(run, "rollout/dynamic_filter/drop_all_long")) > 0,
    "newest_first.py": lambda run: len(metric(run, "train/loss")) == 2,
    "drop_truncated.py": lambda run: all(row["remove_sample"] == (row["status"] == "truncated") for row in samples(run)),
    "count_all.py": lambda run: re.search(r"groups: \d+ of 60 prompts", log(run)),
    "centred.py": lambda run: all(abs(each) < 1e-6 for each in metric(run, "rollout/rewards")),
    "my_batch.py": lambda run: metric(run, "rollout/raw_reward") == [0, 0],
    "my_upload.py": lambda run: re.search(r"to be uploaded: weight_v\d+ .*model\.safetensors", log(run)),
    "my_log.py": lambda run: "rollout 1: 16 samples, the longest of" in log(run),
    "my_rollout.py": lambda run: len(metric(run, "rollout/longest")) == 2 and len(metric(run, "eval/test")) == 3,
    "my_eval.py": lambda run: len(metric(run, "eval/sums")) == 3,
    "my_prompts.py": lambda run: [row["prompt"] for row in samples(run)][::4] == [f"{i}+1=" for i in range(8)],
    "my_eval_log.py": lambda run: re.search(r"test: [0-9.]+ of 20", log(run)),
}
MORE_FLAGS = {
    "newest_first.py": ["--over-sampling-batch-size", "8"],
    "not_all_long.py": ["--over-sampling-batch-size", "8"],
    "my_rollout.py": ["--plugin-python", sys.executable],  # evaluates too, by the checkpoint's tokenizer
}


def samples(run_dir):
    return [json.loads(line) for file in sorted((run_dir / "rollouts").glob("*.jsonl")) for line in file.open()]


def rewards(run_dir):
    return [row["reward"] for row in samples(run_dir)]


def by_group(run_dir):
    groups = {}
    for row in samples(run_dir):
        groups.setdefault(row["group_index"], []).append(row["reward"])
    return groups.values()


def log(run_dir):
    return (run_dir / "plugin" / "host-0.log").read_text()


def test_each_example_says_what_it_shows():
    assert set(SHOWN) == set(EXAMPLES)
    assert PAGE.count("```python") == len(ON_PAGE) and ELSEWHERE <= set(ON_PAGE)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(work, name):
    flags, code = EXAMPLES[name]
    body = [line for line in code.splitlines()[1:] if line and not line.startswith(("import ", "from "))]
    assert len(body) <= 5
    run_dir = work / f"example-{name}"
    folder = work / f"example-{name}-code"
    folder.mkdir()
    (folder / name).write_text(code)
    evaluation = ["--eval-prompt-data", "test", str(work / "data" / "test.jsonl"), "--eval-interval", "1"]
    extra = [*shlex.split(flags), *MORE_FLAGS.get(name, []), *(evaluation if "eval" in name or name == "my_rollout.py" else [])]
    done = run_slime(train_command(work, run_dir, rollouts=2, extra=extra), cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout
    assert SHOWN[name](run_dir), log(run_dir)

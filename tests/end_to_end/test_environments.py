"""--environment: a run in an environment with functions reset and step, and what is refused before a run."""

import json
import subprocess
import sys

from conftest import ROOT, SLIME, run_slime

GAME = '''
class Game:
    """Two turns: the second one is scored."""
    system_prompt = "Play."

    def __init__(self, fails=False):
        self.fails = fails

    def reset(self, seed=None, options=None):
        self.seed, self.turns = seed, 0
        return f"number {seed}", {}

    async def step(self, action):
        if self.fails:
            raise KeyError("the board is gone")
        self.turns += 1
        return "again", float(len(action)) * (self.turns == 2), self.turns == 2, False, {"metrics": {"letters": len(action)}}

def make(fails=False):
    return Game(fails)
'''


def command(work, folder, *extra):
    (folder / "game.py").write_text(GAME)
    return [
        str(SLIME), "train", "--hf-checkpoint", str(work / "model"), "--environment", f"gym:{folder}/game.py:make",
        "--rollout-batch-size", "2", "--n-samples-per-prompt", "2", "--global-batch-size", "4", "--rollout-max-response-len", "8",
        "--num-rollout", "2", "--rollout-stop", "e", "--lr", "1e-3", "--fp32", "--num-threads", "1", "--device", "cpu",
        "--use-dynamic-batch-size", "--max-tokens-per-gpu", "4096", "--run-dir", str(folder / "run"), *extra,
    ]  # fmt: skip


def lines_of(folder):
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def test_an_environment_trains_and_evaluates(work, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = run_slime(command(work, tmp_path, "--eval-interval", "2", "--environment-args", '{"num_tasks": 3, "num_eval_tasks": 2}'))
    assert done.returncode == 0, done.stderr
    rows = [row for file in sorted((tmp_path / "cache" / "slime" / "environments").iterdir()) for row in file.read_text().splitlines()]
    seeds = [json.loads(row)["metadata"]["environment_task"]["seed"] for row in rows]
    assert sorted(seeds) == [0, 1, 2, 3, 4], "three of training, two of evaluation, none of both"
    steps = [line for line in lines_of(tmp_path) if "rollout/raw_reward" in line]
    assert len(steps) == 2
    for step in steps:
        assert 1 <= step["rollout/reward/turns"] <= 2
        assert "rollout/reward/letters" in step
        assert step["rollout/untrained_sampled_tokens"] == 0
    evaluated = [line for line in lines_of(tmp_path) if "eval/game.py_make" in line]
    assert evaluated and "eval/game.py_make/reward/turns" in evaluated[0]
    samples = [json.loads(line) for line in (tmp_path / "run" / "rollouts" / "step_000000.jsonl").read_text().splitlines()]
    assert all(sample["metadata"]["environment_task"]["seed"] in (2, 3, 4) for sample in samples)


def test_an_environment_that_fails_ends_the_run_with_its_traceback(work, tmp_path):
    done = run_slime(command(work, tmp_path, "--environment-args", '{"fails": true}'))
    assert done.returncode != 0
    assert 'raise KeyError("the board is gone")' in done.stdout + done.stderr
    assert "9 groups failed" in done.stderr and "the board is gone" in done.stderr


def test_what_cannot_work_is_refused_before_a_run(work, tmp_path):
    done = run_slime(command(work, tmp_path, "--rm-type", "math", "--prompt-data", "a.jsonl"))
    assert done.returncode != 0 and "--prompt-data: the environment gives the prompts" in done.stderr
    assert "--rm-type: the environment scores" in done.stderr
    done = run_slime(command(work, tmp_path, "--environment-args", '{"speed": 2}'))
    assert done.returncode != 0 and "unexpected keyword argument 'speed'" in done.stderr
    assert not (tmp_path / "run").exists()


def problem_of(environment, **args):
    question = json.dumps({"environment": environment, "args": args, "evaluates": False})
    command = [sys.executable, "-m", "slime.environments", question]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={"PYTHONPATH": str(ROOT / "python"), "PATH": ""})
    return json.loads(done.stdout)["problem"]


def test_each_problem_says_what_would_work():
    assert "verifiers:NAME of a taskset" in problem_of("gymnasium:x")
    assert "there is no module nowhere" in problem_of("gym:nowhere:make")
    assert "as in gym:nowhere:make" in problem_of("gym:nowhere")
    assert "num_tasks should be a whole number" in problem_of("gym:json:loads", num_tasks=0)
    missing = problem_of("openenv:http://127.0.0.1:1")
    assert "pip install openenv==0.10.0" in missing or "is a server of OpenEnv running there?" in missing

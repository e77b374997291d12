"""A run that trains with the rewards of a user's Python function, and what becomes of it when that function misbehaves."""

import json
import shutil

import pytest
from conftest import metric, run_slime, train_command

pytestmark = pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")


def rewarded(work, run_dir, code, *, rollouts=2, extra=(), path="my_rewards.py"):
    """A run in whose folder of command my_rewards.py has `code`."""
    folder = work / f"{run_dir.name}-code"
    folder.mkdir()
    (folder / "my_rewards.py").write_text(code)
    command = train_command(work, run_dir, rollouts=rollouts, extra=["--custom-rm-path", path, *extra])
    at = command.index("--rm-type")
    del command[at : at + 2]
    return run_slime(command, cwd=folder)


def failed_reasons(run_dir):
    fates = [json.loads(line.split(" ", 1)[1]) for line in (run_dir / "ledger.jsonl").read_text().splitlines()]
    return [fate["reason"] for fate in fates if fate.get("fate") == "failed"]


@pytest.mark.parametrize("path", ["my_rewards.py", "my_rewards.py:other", "my_rewards.other"])
def test_rewards_of_a_users_file_train(work, path):
    run_dir = work / f"own-{path.replace(':', '-')}"
    code = "async def reward(args, sample, **kwargs):\n    return sample.response_length / 2 + args.n_samples_per_prompt\n"
    done = rewarded(work, run_dir, code + "other = reward\n", path=path)
    assert done.returncode == 0, done.stdout + done.stderr
    rewards = metric(run_dir, "rollout/raw_reward")
    assert len(rewards) == 2 and all(4.5 <= each <= 7 for each in rewards)
    assert len(metric(run_dir, "train/loss")) == 2


def test_evaluation_has_these_rewards_too(work):
    code = "def reward(args, sample, **kwargs): return 3\n"
    extra = ["--eval-prompt-data", "test", str(work / "data" / "test.jsonl"), "--eval-interval", "1"]
    run_dir = work / "own-evaluation"
    done = rewarded(work, run_dir, code, rollouts=1, extra=extra)
    assert done.returncode == 0, done.stdout + done.stderr
    assert metric(run_dir, "eval/test")[-1] == 3


MISDEEDS = {
    "raise": ("raise ValueError('no such luck')", "ValueError: no such luck"),
    "exit": ("os._exit(3)", "ended with exit code 3"),
    "segfault": ("ctypes.string_at(0)", "was killed by signal 11"),
    "hang": ("await asyncio.sleep(1000)", "took longer than 1 s"),
    "block": ("time.sleep(1000)", "let nothing else go on in its host"),
    "type": ("return 'much'", "the reward is str"),
    "nan": ("return float('nan')", "the reward is nan"),
}


@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_a_misdeed_costs_its_own_sample(work, misdeed):
    statement, reason = MISDEEDS[misdeed]
    code = (
        "import asyncio, ctypes, os, time\n"
        "async def reward(args, sample, **kwargs):\n"
        f"    if sample.index in (2, 9): {statement}\n"
        "    return sample.index % 4\n"
    )
    run_dir = work / f"misdeed-{misdeed}"
    # Few at once: those to blame are looked for by halves, and each of them takes a second to be late (sixteen at once: test_hostile_plugins.py).
    few = ["--rollout-batch-size", "2", "--n-samples-per-prompt", "2", "--global-batch-size", "4"]
    done = rewarded(work, run_dir, code, rollouts=3, extra=["--plugin-timeout-seconds", "1", *few])
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(metric(run_dir, "train/loss")) == 3
    reasons = failed_reasons(run_dir)
    assert len(reasons) == 2 and all("reward: " in each and reason in each for each in reasons), reasons
    if misdeed == "raise":
        assert done.stdout.count("Traceback") == 1 and "my_rewards.py" in done.stdout


@pytest.mark.parametrize("body, said", [("return sample.no_such_field", "AttributeError"), ("pass", "the reward is NoneType")])
def test_a_reward_that_always_fails_ends_the_run_at_once(work, body, said):
    run_dir = work / f"always-fails-{body.split()[0]}"
    groups_of_eight = ["--rollout-batch-size", "8", "--n-samples-per-prompt", "8", "--global-batch-size", "64"]
    done = rewarded(work, run_dir, f"def reward(args, sample, **kwargs):\n    {body}\n", extra=groups_of_eight)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "my_rewards.py:" in done.stderr and said in done.stderr
    assert "the first 32 samples of this start all failed here, and nothing was trained" in done.stderr
    assert len(failed_reasons(run_dir)) < 8, "a part of the first batch"


def test_a_reward_that_fails_at_first_does_not_end_the_run(work):
    run_dir = work / "fails-at-first"
    code = "def reward(args, sample, **kwargs):\n    if sample.index < 31: raise ValueError('no such luck')\n    return sample.index % 4\n"
    groups_of_eight = ["--rollout-batch-size", "4", "--n-samples-per-prompt", "8", "--global-batch-size", "32"]
    done = rewarded(work, run_dir, code, rollouts=1, extra=groups_of_eight)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(metric(run_dir, "train/loss")) == 1


def test_what_cannot_be_imported_is_said_before_a_model_is_loaded(work):
    run_dir = work / "not-importable"
    done = rewarded(work, run_dir, "import no_such_module\n")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--custom-rm-path my_rewards.py: ModuleNotFoundError: No module named 'no_such_module'" in done.stderr
    assert "Traceback" in done.stderr and not (run_dir / "metrics.jsonl").exists()


def test_an_interpreter_without_the_package_is_named(work):
    done = rewarded(work, work / "no-python", "", extra=["--plugin-python", "/bin/false"])
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--plugin-python /bin/false" in done.stderr

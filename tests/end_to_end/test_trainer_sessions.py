"""`--rollout-session-id`: engines, their weights and generated steps outlive a trainer that fails, and the next one has another
layout."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from conftest import SLIME, run_slime, train_command

HOOKS = '''
import os, time

def post(args, samples):
    """Before a step is trained; holds it as long as the file says."""
    while os.path.exists(os.environ["HOLD"]):
        open(os.environ["HOLD"] + ".held", "w").close()
        time.sleep(0.02)
    rewards = [sample.get_reward_value(args) for sample in samples]
    return rewards, rewards
'''


class Session:
    """Commands of one session, in a folder for sessions of their own."""

    def __init__(self, work, name):
        self.name, self.work = name, work
        self.runtime = Path(tempfile.mkdtemp(prefix="ss"))
        self.run_dir = work / f"session-{name}"
        self.hooks = work / "session_hooks.py"
        self.hooks.write_text(HOOKS)
        self.hold = self.runtime / "hold"
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.runtime), "HOLD": str(self.hold)}

    def command(self, *extra, form="train", rollouts=6, apart=True):
        command = train_command(self.work, self.run_dir, rollouts=rollouts)
        command[1] = form
        post = ["--custom-reward-post-process-path", f"{self.hooks}:post"]
        engines = ["--rollout-num-gpus", "1"] if apart else []
        return [*command, *engines, "--rollout-session-id", self.name, *post, *extra]

    def run(self, *extra, **options):
        return run_slime(self.command(*extra, **options), env=self.environment)

    def start(self, *extra, **options):
        return subprocess.Popen(
            self.command(*extra, **options), env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def record(self):
        """session.json; None: there is no session."""
        for path in self.runtime.glob("slime/*/session.json"):
            return json.loads(path.read_text())
        return None

    def engines(self):
        record = self.record()
        return [pid for pid in record["processes"] if is_running(pid)] if record else []

    def unsaved(self):
        return sorted((self.run_dir / "unsaved").glob("step_*.json"))

    def kill_before_training(self, *extra, steps=2, **options):
        """Kills a trainer that has `steps` checkpoints, behind the generation of the next step; the step's groups."""
        process = self.start(*extra, **options)
        wait_for(process, lambda: (self.run_dir / "latest").exists() and checkpoint(self.run_dir) >= steps - 1)
        self.hold.touch()
        wait_for(process, (self.runtime / "hold.held").exists)
        process.kill()
        process.wait()
        self.hold.unlink()
        return [(file.name, json.loads(file.read_text())) for file in self.unsaved()]

    def end(self):
        for pid in self.engines():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.runtime, ignore_errors=True)


@pytest.fixture
def session(work, request):
    made = Session(work, request.node.name.replace("test_", "")[:40])
    yield made
    made.end()


def checkpoint(run_dir):
    return int(os.readlink(run_dir / "latest").rsplit("_", 1)[1])


def is_running(pid):
    try:
        return pid > 0 and " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(process, condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        if process is not None and process.poll() is not None:
            pytest.fail("the run ended too early:\n" + process.stdout.read())
        assert time.monotonic() < end
        time.sleep(0.005)


def trained(run_dir):
    """(step, sample) of everything that was trained."""
    for path in sorted((run_dir / "rollouts").glob("step_*.jsonl")):
        for line in path.open():
            yield int(path.stem.split("_")[1]), json.loads(line)


def check_whole(run_dir, steps):
    samples = [sample["index"] for _, sample in trained(run_dir)]
    assert len(samples) == len(set(samples)) == steps * 16
    audit = run_slime([str(SLIME), "ledger", str(run_dir), "--json"])
    assert audit.returncode == 0, audit.stdout + audit.stderr
    assert json.loads(audit.stdout)["checkpoint"]["prompts"]["trained"] == steps * 4


def test_a_killed_trainer_comes_again_with_another_layout(session):
    kept = session.kill_before_training()
    engines = session.engines()
    assert len(engines) == 1 and kept
    done = session.run("--actor-num-gpus-per-node", "2", "--pipeline-model-parallel-size", "2", "--max-tokens-per-gpu", "256")
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert f"engine 0 (process {engines[0]}, version " in said, said
    assert "none are sent" in said, said
    assert "groups of step" in said and "are trained as they were generated" in said, said
    # What was generated and not trained is trained now, token by token, once.
    tokens = {sample["index"]: (step, sample["tokens"]) for step, sample in trained(session.run_dir)}
    for _, step in kept:
        for group in step["groups"]:
            for sample in group["samples"]:
                assert tokens[sample["index"]] == (step["step"], sample["tokens"])
    check_whole(session.run_dir, 6)
    versions = [max(version for version, _ in sample["weight_versions"]) for _, sample in trained(session.run_dir)]
    assert versions == sorted(versions)
    assert session.record() is None and not is_running(engines[0])
    assert not session.unsaved()


def test_a_wrong_setting_is_refused_and_hurts_no_engine(session):
    session.kill_before_training()
    engines = session.engines()
    wrong = session.run("--rm-type", "f1", "--rollout-temperature", "0.5", "--max-tokens-per-gpu", "256")
    said = wrong.stdout + wrong.stderr
    assert wrong.returncode == 2, said
    assert "--rm-type" in said and "--rollout-temperature" in said and "--max-tokens-per-gpu" not in said.split("settings", 1)[1]
    assert session.engines() == engines
    done = session.run("--max-tokens-per-gpu", "256")
    assert done.returncode == 0, done.stdout + done.stderr
    check_whole(session.run_dir, 6)


def fail_before_first_checkpoint(session, first, *then):
    """The trainer with `first` is killed before it saves, and comes again with `then`: its first step is trained as it was."""
    process = session.start("--save-interval", "100", **first)
    session.hold.touch()
    wait_for(process, (session.runtime / "hold.held").exists)
    process.kill()
    process.wait()
    session.hold.unlink()
    assert not (session.run_dir / "latest").exists()
    kept = json.loads(session.unsaved()[0].read_text())
    engines = session.engines()
    done = session.run("--save-interval", "100", *then)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"(process {engines[0]}, " in done.stdout + done.stderr
    tokens = {sample["index"]: sample["tokens"] for _, sample in trained(session.run_dir)}
    assert all(tokens[sample["index"]] == sample["tokens"] for group in kept["groups"] for sample in group["samples"])
    check_whole(session.run_dir, 6)


def test_a_trainer_that_fails_before_its_first_checkpoint_leaves_its_step(session):
    fail_before_first_checkpoint(session, {})


def test_another_length_and_layout_before_the_first_checkpoint(session):
    layout = ["--actor-num-gpus-per-node", "2", "--pipeline-model-parallel-size", "2", "--max-tokens-per-gpu", "256"]
    fail_before_first_checkpoint(session, {"rollouts": 9}, *layout)


def test_a_stream_goes_on_with_its_engines(session):
    kept = session.kill_before_training(form="train-async")
    engines = session.engines()
    done = session.run("--max-tokens-per-gpu", "256", form="train-async")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"(process {engines[0]}, " in done.stdout + done.stderr
    tokens = {sample["index"]: sample["tokens"] for _, sample in trained(session.run_dir)}
    for _, step in kept:
        assert all(tokens[sample["index"]] == sample["tokens"] for group in step["groups"] for sample in group["samples"])
    check_whole(session.run_dir, 6)


def test_a_generated_step_is_trained_also_where_the_engine_ended_with_its_trainer(session):
    kept = session.kill_before_training(apart=False)
    assert not session.engines() and kept
    done = session.run("--max-tokens-per-gpu", "256", apart=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "are trained as they were generated" in said, said
    tokens = {sample["index"]: sample["tokens"] for _, sample in trained(session.run_dir)}
    for _, step in kept:
        assert all(tokens[sample["index"]] == sample["tokens"] for group in step["groups"] for sample in group["samples"])
    check_whole(session.run_dir, 6)
    # Steps of other settings are not: nobody waits with them.
    session.run_dir = session.run_dir.with_name(session.run_dir.name + "-other")
    session.kill_before_training(apart=False)
    other = session.run("--rollout-temperature", "0.5", apart=False)
    said = other.stdout + other.stderr
    assert other.returncode == 0 and "are of other settings, and are generated again" in said, said
    check_whole(session.run_dir, 6)


def test_two_trainers_do_not_share_engines(session):
    process = session.start(rollouts=100)
    wait_for(process, lambda: (session.run_dir / "latest").exists())
    command = session.command(rollouts=100)
    command[command.index("--run-dir") + 1] = str(session.run_dir) + "-other"
    second = run_slime(command, env=session.environment)
    assert second.returncode == 2
    assert f"process {process.pid} on " in second.stdout + second.stderr
    listed = subprocess.run([str(SLIME), "session", "list"], env=session.environment, capture_output=True, text=True)
    assert "in use" in listed.stdout
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert session.record() is None  # who is stopped does not come again


def test_engines_that_wait_are_listed_and_ended(session):
    session.kill_before_training()
    engines = session.engines()
    listed = subprocess.run([str(SLIME), "session", "list"], env=session.environment, capture_output=True, text=True)
    assert f"{session.name}: 1 engines (processes {engines[0]}), waiting for a trainer" in listed.stdout
    ended = subprocess.run(
        [str(SLIME), "session", "end", session.name], env=session.environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert not is_running(engines[0]) and session.record() is None
    # The run goes on from its checkpoint, with other engines.
    done = session.run()
    assert done.returncode == 0, done.stdout + done.stderr
    check_whole(session.run_dir, 6)


def test_engines_that_nobody_comes_for_end_by_themselves(session):
    session.kill_before_training("--rollout-session-minutes", "0.05")
    engines = session.engines()
    assert engines
    wait_for(None, lambda: not is_running(engines[0]), seconds=30)


def test_an_engine_that_died_is_started_again_by_the_next_trainer(session):
    session.kill_before_training("--rollout-num-gpus", "2")
    first, second = session.engines()
    os.kill(first, signal.SIGKILL)
    wait_for(None, lambda: not is_running(first))
    done = session.run("--rollout-num-gpus", "2", "--max-tokens-per-gpu", "256")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"(process {second}, " in done.stdout + done.stderr
    check_whole(session.run_dir, 6)


def test_a_run_that_ends_with_an_error_leaves_its_engines(session):
    # A limit that is reached in the first step.
    failed = session.run("--dynamic-sampling-filter-path", "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std",
                         "--max-filter-ratio", "0.1", "--n-samples-per-prompt", "1", "--global-batch-size", "4")  # fmt: skip
    said = failed.stdout + failed.stderr
    assert failed.returncode != 0
    assert f"slime session end {session.name}" in said, said
    assert len(session.engines()) == 1

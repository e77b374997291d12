"""Adapters trained side by side over one base: each is the run that it is alone, also after kill -9."""

import json
import signal
import subprocess
import time

import pytest
from conftest import SLIME, metric, numbers_that_repeat, run_slime, train_command

ADAPTER = ["--lora-rank", "4", "--lora-alpha", "8"]
NAMES = ("sums", "words")
# Ends of names of what depends on when requests met in the engine.
OF_TIME = ("cached_tokens", "generation_seconds", "avg_cached_tokens_per_sample", "prefix_cache_hit_rate")


@pytest.fixture(scope="module")
def other_data(work):
    """Other prompts than rl.jsonl, in another order."""
    path = work / "words.jsonl"
    rows = [json.loads(line) for line in (work / "data" / "rl.jsonl").read_text().splitlines()]
    for row in rows:
        row["prompt"][0]["content"] = "and " + row["prompt"][0]["content"]
    path.write_text("".join(json.dumps(row) + "\n" for row in reversed(rows)))
    return path


@pytest.fixture(scope="module")
def own(work, other_data):
    """By name: data, rate, rank, loss and length differ."""
    evaluated = f"--eval-interval 2 --eval-prompt-data test {work / 'data' / 'test.jsonl'} --eval-max-response-len 4"
    return {
        "sums": f"--lr 5e-2 {evaluated}",
        "words": f"--prompt-data {other_data} --lr 2e-2 --lora-rank 2 --num-rollout 3 --use-kl-loss --kl-loss-coef 0.1",
    }


def together(work, own, run_dir, *extra):
    adapters = [word for name in NAMES for word in ("--adapter", f"{name}={own[name]}")]
    return train_command(work, run_dir, rollouts=4, extra=[*ADAPTER, *extra, *adapters])


def alone(work, own, run_dir, name):
    command = train_command(work, run_dir, rollouts=4, extra=[*ADAPTER, *own[name].split()])
    if "--prompt-data" in own[name]:  # occurrences add up
        at = command.index("--prompt-data")
        del command[at : at + 2]
    return command


def adapter_bytes(run_dir):
    return (run_dir / "latest" / "adapter_model.safetensors").read_bytes()


def without_time(row):
    return {name: value for name, value in row.items() if not name.endswith(OF_TIME)}


def samples(run_dir):
    """By file."""
    files = sorted((run_dir / "rollouts").glob("step_*.jsonl"))
    return {file.name: [without_time(json.loads(line)) for line in file.read_text().splitlines()] for file in files}


def metrics(run_dir):
    return {step: without_time(row) for step, row in numbers_that_repeat(run_dir).items()}


@pytest.fixture(scope="module")
def both(work, own):
    run_dir = work / "both"
    done = run_slime(together(work, own, run_dir, "--check-weight-update-equal"))
    assert done.returncode == 0, done.stdout + done.stderr
    for name in NAMES:
        assert f"{name}: --check-weight-update-equal: " in done.stdout, done.stdout
    return run_dir


@pytest.fixture(scope="module")
def each_alone(work, own):
    for name in NAMES:
        done = run_slime(alone(work, own, work / "alone" / name, name))
        assert done.returncode == 0, done.stdout + done.stderr
    return work / "alone"


@pytest.mark.parametrize("name", NAMES)
def test_each_is_bit_for_bit_the_run_that_it_is_alone(both, each_alone, name):
    assert adapter_bytes(both / name) == adapter_bytes(each_alone / name)
    assert samples(both / name) == samples(each_alone / name)
    assert len(samples(both / name)) == {"sums": 4, "words": 3}[name]
    assert metrics(both / name) == metrics(each_alone / name)


def test_each_has_data_evaluations_and_a_length_of_its_own(both):
    assert len(metric(both / "sums", "train/loss")) == 4 and len(metric(both / "words", "train/loss")) == 3
    assert metric(both / "sums", "eval/test") and not metric(both / "words", "eval/test")
    assert max(metric(both / "words", "train/kl_loss")) > 0 and not metric(both / "sums", "train/kl_loss")
    assert json.loads((both / "words" / "latest" / "adapter_config.json").read_text())["r"] == 2
    for name in NAMES:  # of the engine's log-probs and the trainer's
        assert max(metric(both / name, "train/train_rollout_logprob_abs_diff")) < 1e-5
    listed = run_slime([str(SLIME), "runs", str(both)])
    assert listed.returncode == 0 and all(name in listed.stdout for name in NAMES), listed.stdout


def wait_until(process, is_time):
    deadline = time.monotonic() + 240
    while not is_time() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)


def test_killed_runs_go_on_bit_for_bit(work, own, each_alone, tmp_path):
    run_dir = tmp_path / "runs"
    for name in NAMES:  # the second time they go on from checkpoints of other steps
        file = run_dir / name / "latest" / "adapter_model.safetensors"
        before = file.read_bytes() if file.exists() else None
        process = subprocess.Popen(together(work, own, run_dir), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(process, lambda file=file, before=before: file.exists() and file.read_bytes() != before)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL or name == NAMES[1]
    done = run_slime(together(work, own, run_dir))
    assert done.returncode == 0, done.stdout + done.stderr
    for name in NAMES:
        assert adapter_bytes(run_dir / name) == adapter_bytes(each_alone / name)
        assert samples(run_dir / name) == samples(each_alone / name)


def test_ctrl_c_is_for_all_and_each_goes_on(work, own, each_alone, tmp_path):
    run_dir = tmp_path / "runs"
    process = subprocess.Popen(together(work, own, run_dir), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_until(process, lambda: samples(run_dir / "sums"))
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 130, output
    done = run_slime(together(work, own, run_dir))
    assert done.returncode == 0, done.stdout + done.stderr
    for name in NAMES:
        assert adapter_bytes(run_dir / name) == adapter_bytes(each_alone / name)


def test_a_run_that_fails_ends_alone(work, own, each_alone, tmp_path):
    reward = tmp_path / "reward.py"
    reward.write_text("def reward(args, sample, **kwargs):\n    raise RuntimeError('no score today')\n")
    failing = {**own, "words": f"{own['words']} --custom-rm-path {reward}:reward --max-failed-groups 0"}
    done = run_slime(together(work, failing, tmp_path / "run"))
    assert done.returncode not in (0, 130), done.stdout + done.stderr
    assert "words: this run ends, the others go on: --adapter words: " in done.stdout, done.stdout
    assert "no score today" in done.stdout + done.stderr
    assert adapter_bytes(tmp_path / "run" / "sums") == adapter_bytes(each_alone / "sums")


@pytest.mark.parametrize(
    "extra, says",
    [
        (["--adapter", "a=--device cpu"], "--adapter a: --device is of what all adapters share"),
        (["--adapter", "a=", "--adapter", "a=--lr 1"], "--adapter a: there are two of this name"),
        (["--adapter", "sums"], "--adapter sums: is NAME=FLAGS"),
        (["--adapter", "a=", "--adapter", "b=--learning-rat 1"], "--adapter b: unknown flag --learning-rat"),
        (["--adapter", "a=", "--adapter", "b=--lr fast"], "--adapter b: --lr"),
        (["--adapter", "a=", "--adapter", "b=--prompt-data nowhere.jsonl"], "--adapter b: --prompt-data nowhere.jsonl"),
        (["--adapter", "a=", "--adapter", "b=--lora-modules-to-save norm"], "--adapter b: --lora-modules-to-save: not with --adapter"),
        (["--adapter", "a=--lora-rank 0"], "--adapter a: needs --lora-rank"),
        (["--adapter", "a=", "--rollout-num-gpus", "2"], "--adapter a: engines of their own: not with --adapter"),
        (["--adapter", "a=", "--adapter", "b=", "--save", "here"], "--adapter b: --save here is that of adapter a too"),
    ],
)
def test_what_cannot_be_side_by_side_is_refused_before_anything_starts(work, tmp_path, extra, says):
    done = run_slime(train_command(work, tmp_path / "run", rollouts=1, extra=[*ADAPTER, *extra]), cwd=tmp_path)
    assert done.returncode == 2 and says in done.stdout + done.stderr, done.stdout + done.stderr
    assert not (tmp_path / "run").exists() and not (tmp_path / "here").exists()


def test_train_async_is_refused(work, tmp_path):
    command = train_command(work, tmp_path / "run", rollouts=1, extra=[*ADAPTER, "--adapter", "a="])
    command[1] = "train-async"
    done = run_slime(command)
    assert done.returncode == 2 and "--adapter a: slime train-async: not with --adapter" in done.stdout + done.stderr, done.stderr


def test_a_dry_run_is_one_for_each(work, own, tmp_path):
    done = run_slime([*together(work, own, tmp_path / "run"), "--dry-run"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("A run would begin") == 2 and "adapter words" in done.stdout, done.stdout
    assert not (tmp_path / "run").exists()

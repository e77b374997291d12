"""Runs whose trainer calls functions of the user's: losses in Python and as a library, hooks around a step, and their misdeeds."""

import re
import shutil
import subprocess

import pytest
from conftest import ROOT, metric, numbers_that_repeat, run_slime, train_command
from torch_python import torch_python

needs_torch = pytest.mark.skipif(torch_python() is None, reason="no python3 with torch (Debian: python3-torch)")
needs_python = pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")
EXAMPLES = ROOT / "examples" / "custom_loss"
TWO_UPDATES = ["--global-batch-size", "8"]


def documented(name):
    """The example of docs/plugins.md that begins with the file's name."""
    (code,) = re.findall(rf"```\w+\n((?:#|//) {name}.*?)```", (ROOT / "docs" / "plugins.md").read_text(), re.S)
    return code


def built(folder, source):
    """The library, by the command that the documentation gives."""
    command = re.search(r"g\+\+ -O3 -shared -fPIC -I include", documented("my_loss.cpp"))[0]
    subprocess.run([*command.split(), str(source), "-o", str(folder / "loss.so")], check=True, cwd=ROOT)
    return ["--loss-type", "custom_loss", "--custom-loss-library", str(folder / "loss.so")]


def function(path):
    return ["--loss-type", "custom_loss", "--custom-loss-function-path", str(path), "--plugin-python", torch_python()]


@pytest.fixture(scope="module")
def dump(work):
    """The folder of a run with two updates in each rollout step, and a dump of its samples."""
    pattern = str(work / "trainer-functions" / "{rollout_id}.jsonl")
    run_dir = work / "built-in-loss"
    extra = [*TWO_UPDATES, "--save-debug-rollout-data", pattern]
    done = run_slime(train_command(work, run_dir, rollouts=3, extra=extra))
    assert done.returncode == 0, done.stdout + done.stderr
    return run_dir, pattern


def again(work, dump, name, extra):
    """The dumped samples trained with other flags."""
    run_dir = work / name
    return run_dir, run_slime(
        train_command(work, run_dir, rollouts=3, extra=[*TWO_UPDATES, "--load-debug-rollout-data", dump[1], *extra]), cwd=work
    )


def trained_alike(run_dir, reference):
    ours, theirs = numbers_that_repeat(run_dir), numbers_that_repeat(reference)
    assert ours.keys() == theirs.keys() and len(ours) == 3
    for step, row in theirs.items():
        for name in ("loss", "pg_loss", "pg_clipfrac", "ppo_kl", "entropy_loss", "grad_norm"):
            key = f"train/{name}"
            assert ours[step][key] == pytest.approx(row[key], abs=1e-6, rel=1e-5), (step, key)


@needs_torch
def test_a_loss_in_python_trains_as_the_built_in_one(work, dump):
    run_dir, done = again(work, dump, "python-loss", function(EXAMPLES / "grpo_loss.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    trained_alike(run_dir, dump[0])


@needs_torch
def test_a_loss_in_python_trains_in_the_nuclei_that_tokens_were_drawn_from(work):
    rows = {}
    for name, extra in (("built-in", []), ("python", function(EXAMPLES / "grpo_loss.py"))):
        run_dir = work / f"nuclei-{name}"
        done = run_slime(train_command(work, run_dir, rollouts=2, extra=[*TWO_UPDATES, "--rollout-top-p", "0.8", *extra]))
        assert done.returncode == 0, done.stdout + done.stderr
        rows[name] = numbers_that_repeat(run_dir)
    for step in range(2):
        for name in ("loss", "pg_loss", "ppo_kl", "entropy_loss", "grad_norm"):
            key = f"train/{name}"
            assert rows["python"][step][key] == pytest.approx(rows["built-in"][step][key], abs=1e-6, rel=1e-5), (step, key)


def test_a_loss_in_a_library_trains_as_the_built_in_one(work, dump):
    folder = work / "library"
    folder.mkdir()
    run_dir, done = again(work, dump, "library-loss", built(folder, EXAMPLES / "grpo_loss.cpp"))
    assert done.returncode == 0, done.stdout + done.stderr
    trained_alike(run_dir, dump[0])


@needs_torch
def test_each_of_two_ranks_has_a_host(work, dump):
    extra = [*function(EXAMPLES / "grpo_loss.py"), "--actor-num-gpus-per-node", "2"]
    run_dir, done = again(work, dump, "python-loss-ranks", extra)
    assert done.returncode == 0, done.stdout + done.stderr
    trained_alike(run_dir, dump[0])


@needs_torch
def test_the_documented_loss_trains(work, dump):
    folder = work / "documented-loss"
    folder.mkdir()
    (folder / "my_loss.py").write_text(documented("my_loss.py"))
    run_dir, done = again(work, dump, "documented-loss-run", function(folder / "my_loss.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    gains, losses = metric(run_dir, "train/gain"), metric(run_dir, "train/loss")
    assert len(gains) >= 3 and gains == pytest.approx([-each for each in losses])


def test_the_documented_library_trains(work, dump):
    folder = work / "documented-library"
    folder.mkdir()
    (folder / "my_loss.cpp").write_text(documented("my_loss.cpp"))
    run_dir, done = again(work, dump, "documented-library-run", built(folder, folder / "my_loss.cpp"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(metric(run_dir, "train/loss")) == 6, "two updates of each of three rollouts"


@needs_python
def test_the_documented_hooks_are_called_around_each_step(work, dump):
    folder = work / "documented-hooks"
    folder.mkdir()
    path = str(folder / "my_hooks.py")
    (folder / "my_hooks.py").write_text(
        documented("my_hooks.py") + "def before_log_prob(args, model, store_prefix):\n    args.begun.append(store_prefix)\n"
    )
    flags = ["--custom-megatron-init-path", "--custom-megatron-before-train-step-hook-path", "--custom-megatron-before-log-prob-hook-path"]
    extra = [word for flag in flags for word in (flag, path)]
    extra += ["--use-kl-loss", "--kl-loss-coef", "0.1", "--ref-load", str(work / "model")]
    run_dir, done = again(work, dump, "documented-hooks-run", extra)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"print is in {run_dir}/plugin/trainer-0.log" in done.stdout
    last = (run_dir / "plugin" / "trainer-0.log").read_text().splitlines()[-1]
    expected = [each for rollout in range(3) for each in ("ref_", "", (rollout, 0), (rollout, 1))]
    assert last == f"begun {expected}"


FUNCTIONS = {
    "my_advantages.py": ["--custom-advantage-function-path"],
    "my_data.py": ["--rollout-data-postprocess-path"],
    "my_correction.py": ["--use-tis", "--custom-tis-function-path"],
    "my_reducer.py": ["--custom-pg-loss-reducer-function-path"],
}


@needs_torch
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_documented_functions_change_what_is_trained(work, dump, name):
    norms = []
    for num_ranks in (1, 2):  # a rank's part is a part of the same step
        folder = work / f"documented-{name}-{num_ranks}"
        folder.mkdir()
        (folder / name).write_text(documented(name))
        extra = [*FUNCTIONS[name], str(folder / name), "--plugin-python", torch_python(), "--actor-num-gpus-per-node", str(num_ranks)]
        run_dir, done = again(work, dump, f"documented-{name}-{num_ranks}-run", extra)
        assert done.returncode == 0, done.stdout + done.stderr
        norms.append(metric(run_dir, "train/grad_norm"))
        assert norms[-1] != metric(dump[0], "train/grad_norm")
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)


MISDEEDS = {
    "raise": ("raise ValueError('no such luck')", "ValueError: no such luck"),
    "exit": ("os._exit(3)", "the plug-in host ended with exit code 3"),
    "segfault": ("ctypes.string_at(0)", "was killed by signal 11"),
    "hang": ("time.sleep(1000)", "it took longer than 2 s"),
    "nan": ("return torch.tensor(float('nan')), {}", "it is one finite number"),
    "type": ("return 'little', {}", "a loss function returns its loss"),
    "model": ("model", "NameError"),
}


@needs_torch
@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_a_misdeed_ends_the_run_and_its_checkpoint_goes_on(work, dump, misdeed):
    statement, reason = MISDEEDS[misdeed]
    folder = work / f"loss-{misdeed}"
    folder.mkdir()
    good = (EXAMPLES / "grpo_loss.py").read_text()
    # 16 samples a rollout: it happens in the third one.
    count = "    args.seen = getattr(args, 'seen', 0) + len(batch['loss_masks'])\n"
    begin = f"{count}    if args.seen > 32: {statement}\n    _, found"
    bad = "import ctypes, os, time\n" + good.replace("    _, found", begin, 1)
    (folder / "my_loss.py").write_text(bad)
    extra = [*function(folder / "my_loss.py"), "--plugin-timeout-seconds", "2", "--max-tokens-per-gpu", "4096"]
    name = f"loss-{misdeed}-run"
    run_dir, done = again(work, dump, name, extra)
    assert done.returncode == 1, done.stdout + done.stderr
    assert reason in done.stderr and "my_loss.py" in done.stderr, done.stderr
    assert ("Traceback" in done.stderr) == (misdeed in ("raise", "model")), done.stderr
    assert len(metric(run_dir, "train/loss")) == 4  # two rollouts of two updates
    (folder / "my_loss.py").write_text(good)
    run_dir, done = again(work, dump, name, extra)
    assert done.returncode == 0 and "continuing after rollout 1" in done.stdout, done.stdout + done.stderr
    trained_alike(run_dir, dump[0])


@needs_python
def test_a_missing_torch_is_said_before_a_model_is_loaded(work, dump):
    folder = work / "no-torch"
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("raise ImportError('none here')\n")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder}:$PYTHONPATH exec python3 "$@"\n')
    python.chmod(0o755)
    extra = ["--loss-type", "custom_loss", "--custom-loss-function-path", str(EXAMPLES / "grpo_loss.py"), "--plugin-python", str(python)]
    run_dir, done = again(work, dump, "no-torch-run", extra)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"--custom-loss-function-path {EXAMPLES / 'grpo_loss.py'}" in done.stderr and "cannot import torch (none here)" in done.stderr
    assert not (run_dir / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    "extra, says",
    [
        (["--loss-type", "custom_loss"], "needs --custom-loss-function-path"),
        (["--custom-loss-function-path", "a.py"], "needs --loss-type custom_loss"),
        (["--loss-type", "custom_loss", "--custom-loss-library", "/nowhere.so"], "/nowhere.so: no such file"),
        (["--loss-type", "custom_loss", "--custom-loss-function-path", "loss"], "should be module.name, file.py:name or file.py"),
    ],
)
def test_contradictions_are_said(work, extra, says):
    done = run_slime(train_command(work, work / "contradiction", extra=extra))
    assert done.returncode == 2 and says in done.stderr, done.stderr

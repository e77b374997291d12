"""`slime train-async --rollout-function-path`: a user's rollout function draws one step ahead, and nothing is lost."""

import json
import shutil
import signal
import subprocess
import time

import pytest
from conftest import SLIME, metric, run_slime, train_command
from test_rollout_functions import OWN_DOOR, SOURCE, numbers
from test_rollout_hooks import fates, hooked, samples, trained

pytestmark = pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")

# The trainer's hook of a step waits until the function draws for the next one, and says so when nothing comes.
BESIDE = """
import os, time

def before_train_step(args, rollout_id, step_id, model, optimizer, opt_param_scheduler):
    patience = time.monotonic() + 30
    while rollout_id + 1 < args.num_rollout and not os.path.exists(f"begun-{rollout_id + 1}"):
        if time.monotonic() > patience:
            raise RuntimeError(f"nothing is drawn beside step {rollout_id}")
        time.sleep(0.005)
"""
HOOK = ["--custom-megatron-before-train-step-hook-path", "own.py"]
OVERLAP = OWN_DOOR + BESIDE + """

def note(what):
    print(what, flush=True)

def rollout(args, rollout_id, data_source, evaluation=False):
    if evaluation:
        note(f"evaluate {rollout_id}")
        return {"mine": {"rewards": [1.0]}}
    note(f"begin {rollout_id}")
    open(f"begun-{rollout_id}", "w").close()
    groups = run(draw_all(args, data_source.get_samples(args.rollout_batch_size)))
    note(f"end {rollout_id}")
    return groups
"""

# Takes its prompts, and draws no further until somebody says so; but for the first steps.
HALF_WAY = OWN_DOOR + BESIDE + """
def rollout(args, rollout_id, data_source, evaluation=False):
    groups = data_source.get_samples(args.rollout_batch_size)
    line = " ".join(map(str, ["took", rollout_id, *[group[0].group_index for group in groups]]))
    os.write(1, f"{line}\\n".encode())  # whole, or not at all: the test kills
    open(f"begun-{rollout_id}", "w").close()
    while rollout_id == int(args.stands_at) and not os.path.exists("go"):
        time.sleep(0.01)
    return run(draw_all(args, groups))
"""


def lags(run_dir):
    return metric(run_dir, "rollout/weight_version/lag_max")


@pytest.mark.parametrize("mode", ["drain", "suspend"])
def test_it_draws_for_the_next_step_while_one_is_trained(work, mode):
    run_dir = work / f"ahead-{mode}"
    flags = ["--rollout-function-path", "own.py", *HOOK, "--eval-interval", "2", *(["--update-mode", "suspend"] if mode == "suspend" else [])]
    done = hooked(work, run_dir, OVERLAP, flags, rollouts=4, form="train-async")
    trained(done, run_dir, 4)
    assert [record["ordinal"] for record in fates(run_dir, "trained")] == list(range(16))
    assert metric(run_dir, "eval/mine") == [1.0] * 3 and lags(run_dir)[0] == 0 and max(lags(run_dir)) <= 1
    log = (run_dir / "plugin" / "host-0.log").read_text().split("\n")[:-1]
    # One call at a time; the evaluation behind step 1 waits for the step that is drawn ahead.
    assert log == ["evaluate 0", "begin 0", "end 0", "begin 1", "end 1", "begin 2", "end 2", "evaluate 1", "begin 3", "end 3", "evaluate 3"]
    if mode == "drain":
        assert lags(run_dir) == [0, 1, 1, 1]
        assert [row["weight_versions"] for row in samples(run_dir)] == [[[max(0, step - 1), 4]] for step in range(4) for _ in range(16)]


UPDATES = OVERLAP + """
def before_weight_update(args, policy_version):
    note(f"before {policy_version}")

def after_weight_update(rollout_id, policy_version):
    note(f"after {policy_version}, {rollout_id} is trained")
"""


def test_its_module_hears_of_updates_of_the_weights(work):
    run_dir = work / "ahead-updates"
    done = hooked(work, run_dir, UPDATES, ["--rollout-function-path", "own.py", *HOOK], rollouts=2, form="train-async")
    trained(done, run_dir, 2)
    log = (run_dir / "plugin" / "host-0.log").read_text().split("\n")[:-1]
    assert log == [
        "begin 0", "end 0", "begin 1", "end 1", "before 1", "after 1, 0 is trained", "before 2", "after 2, 1 is trained",
    ]  # fmt: skip


def ahead_command(work, run_dir, flags, rollouts=4):
    folder = work / f"{run_dir.name}-code"
    folder.mkdir()
    (folder / "own.py").write_text(HALF_WAY)
    command = train_command(work, run_dir, rollouts=rollouts, extra=["--rollout-function-path", "own.py", *HOOK, *flags])
    command[1] = "train-async"
    return command, folder


def begin(command, folder, is_there):
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not is_there() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert is_there() and process.poll() is None
    return process


def state(run_dir):
    return json.loads((run_dir / "latest" / "run.json").read_text())["run"]


def log_of(run_dir):
    log = run_dir / "plugin" / "host-0.log"
    return log.read_text() if log.exists() else ""


def goes_on(command, folder, run_dir, rollouts=4):
    (folder / "go").write_text("")
    trained(run_slime(command, cwd=folder), run_dir, rollouts)
    assert not fates(run_dir, "failed")
    assert [row["index"] for row in samples(run_dir)] == list(range(16 * rollouts))


def test_a_step_that_is_drawn_ahead_outlives_kill_9_and_is_drawn_once(work):
    run_dir = work / "ahead-killed"
    command, folder = ahead_command(work, run_dir, ["--stands-at", "2"])
    # Step 0 is saved, and step 2 stands: the checkpoint is the one with step 1 drawn.
    process = begin(command, folder, lambda: (run_dir / "latest").exists() and "took 2" in log_of(run_dir))
    process.kill()
    process.wait()
    drawn = state(run_dir)["drawn_step"]
    assert drawn["step"] == 1 and [group["group"] for group in drawn["groups"]] == [4, 5, 6, 7]
    assert state(run_dir)["data_source"]["waiting"] == []
    goes_on(command, folder, run_dir)
    assert [line for line in log_of(run_dir).splitlines() if line.startswith("took")][-2:] == ["took 2 8 9 10 11", "took 3 12 13 14 15"]
    assert log_of(run_dir).count("took 1") <= 1
    tokens = [sample["tokens"] for group in drawn["groups"] for sample in group["samples"]]
    assert [row["tokens"] for row in samples(run_dir)][16:32] == tokens


def test_what_a_function_has_half_way_comes_again_after_ctrl_c(work):
    run_dir = work / "ahead-stopped"
    command, folder = ahead_command(work, run_dir, ["--stands-at", "1"])
    process = begin(command, folder, lambda: "took 1" in log_of(run_dir))
    process.send_signal(signal.SIGINT)  # the function stands: the update behind step 0 waits for it no longer
    assert process.wait(timeout=60) == 130
    assert [group["group"] for group in state(run_dir)["data_source"]["waiting"]] == [4, 5, 6, 7]
    assert "drawn_step" not in state(run_dir)
    assert run_slime([str(SLIME), "ledger", str(run_dir)]).returncode == 0
    goes_on(command, folder, run_dir)


def test_a_checkpoint_between_two_updates_has_the_prompts_of_the_function_under_way(work):
    run_dir = work / "ahead-between"
    command, folder = ahead_command(work, run_dir, ["--stands-at", "1", "--update-weights-interval", "2"])
    process = begin(command, folder, lambda: (run_dir / "latest").exists())
    process.kill()
    process.wait()
    assert [group["group"] for group in state(run_dir)["data_source"]["waiting"]] == [4, 5, 6, 7]
    goes_on(command, folder, run_dir)


def test_a_data_source_of_ones_own_beside_it_gives_each_prompt_once(work):
    run_dir = work / "ahead-own-data"
    code = SOURCE + OWN_DOOR + (
        "def rollout(args, rollout_id, data_source, evaluation=False):\n"
        "    groups = data_source.get_samples(4)\n"
        "    for group in groups:\n"
        "        for i, sample in enumerate(group): sample.tokens, sample.index = [5, 6, 7], i\n"
        "    return run(draw_all(args, groups))\n"
    )
    flags = ["--data-source-path", "own.py:Counting", "--rollout-function-path", "own.py"]
    trained(hooked(work, run_dir, code, flags, rollouts=2, form="train-async"), run_dir)
    shutil.rmtree(work / f"{run_dir.name}-code")
    trained(hooked(work, run_dir, code, flags, rollouts=4, form="train-async"), run_dir, 4)
    assert numbers(run_dir) == [n for n in range(16) for _ in range(4)]
    assert lags(run_dir) == [0, 1, 0, 1]  # each command begins with a step of the newest weights


@pytest.mark.parametrize("what", ["raise ValueError('no such luck')", "import os; os._exit(4)"])
def test_one_that_fails_ends_the_run_with_its_reason(work, what):
    run_dir = work / f"ahead-fails-{len(what)}"
    code = OWN_DOOR + (
        "def rollout(args, rollout_id, data_source, evaluation=False):\n"
        f"    if rollout_id == 1: {what}\n"
        "    return run(draw_all(args, data_source.get_samples(4)))\n"
    )
    done = hooked(work, run_dir, code, ["--rollout-function-path", "own.py"], form="train-async")
    reason = "ended with exit code 4" if "_exit" in what else "ValueError: no such luck"
    assert done.returncode == 2 and "--rollout-function-path own.py: " in done.stderr and reason in done.stdout + done.stderr
    assert state(run_dir)["weight_version"] == 1  # step 0 was trained, published and saved

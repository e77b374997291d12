"""`slime train-async`: generation goes on while the trainer trains, within a bound, and loses nothing."""

import json
import random
import subprocess
import time

import pytest
from conftest import SLIME, metric, run_slime, train_command

STEPS = 12
ENDS = [str(token) for token in range(44)]  # one in six tokens ends a response: lengths differ a lot


def async_command(work, run_dir, *, rollouts=STEPS, extra=()):
    command = train_command(work, run_dir, rollouts=rollouts)
    command[1] = "train-async"
    command[command.index("--rollout-max-response-len") + 1] = "40"
    return [*command, "--rollout-stop-token-ids", *ENDS, *extra]


def samples(run_dir):
    """(step, sample) of everything that was trained."""
    for path in sorted((run_dir / "rollouts").glob("step_*.jsonl")):
        for line in path.open():
            yield int(path.stem.split("_")[1]), json.loads(line)


def fates(run_dir):
    """Ordinal -> its records that count."""
    lines = []
    position = 0
    for line in (run_dir / "ledger.jsonl").read_bytes().splitlines(keepends=True):
        record = json.loads(line.split(b" ", 1)[1])
        if "rollback_to" in record:
            lines = [(at, old) for at, old in lines if at < record["rollback_to"]]
        else:
            lines.append((position, record))
        position += len(line)
    known = {}
    for _, record in lines:
        if "checkpoint" in record:
            continue
        known.setdefault(record["ordinal"], []).append(record)
    return known


def check_bound(run_dir, bound, interval=1):
    trained = set()
    for step, sample in samples(run_dir):
        assert (step, sample["index"]) not in trained
        trained.add((step, sample["index"]))
        assert sum(tokens for _, tokens in sample["weight_versions"]) == sample["response_length"]
        for version, _ in sample["weight_versions"]:
            assert 0 <= step // interval - version <= bound
    assert len({index for _, index in trained}) == len(trained) == STEPS * 16


FORMS = {
    "default": (1, 1, []),
    "drain": (1, 1, ["--update-mode", "drain"]),
    "interrupt": (1, 1, ["--update-mode", "interrupt"]),
    "recompute": (1, 1, ["--kv-on-update", "recompute"]),
    "colocated": (2, 1, ["--colocate", "--max-staleness", "2"]),
    "colocated_drain": (1, 1, ["--colocate", "--update-mode", "drain"]),
    "far": (4, 1, ["--max-staleness", "4", "--async-order", "finish"]),
    "interval": (1, 2, ["--update-weights-interval", "2"]),
    "on_policy": (0, 1, ["--max-staleness", "0"]),
    "fully": (1, 1, ["--max-staleness", "1", "--rollout-function-path", "slime.rollout.fully_async_rollout.generate_rollout_fully_async"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_no_token_is_older_than_the_bound_in_any_form(work, form):
    bound, interval, extra = FORMS[form]
    run_dir = work / f"async-{form}"
    done = run_slime(async_command(work, run_dir, extra=extra))
    assert done.returncode == 0, done.stdout + done.stderr
    check_bound(run_dir, bound, interval)
    finals = [records[-1] for records in fates(run_dir).values()]
    assert sorted(record["fate"] for record in finals) == ["trained"] * (STEPS * 4)
    assert max(metric(run_dir, "rollout/weight_version/lag_max")) <= bound
    if bound == 0 or form == "drain":
        # Each sample is of one version.
        assert all(len(sample["weight_versions"]) <= 1 for _, sample in samples(run_dir))


def test_generation_goes_on_while_the_trainer_trains(work):
    """The second batch is drawn with the weights that the first was drawn with: it did not wait for the update."""
    for name, bound, expected in (("ahead", "1", 0), ("at-once", "0", 1)):
        run_dir = work / f"async-{name}"
        done = run_slime(async_command(work, run_dir, rollouts=2, extra=["--max-staleness", bound]))
        assert done.returncode == 0, done.stdout + done.stderr
        first = [sample["weight_versions"][0][0] for step, sample in samples(run_dir) if step == 1 and sample["response_length"]]
        assert min(first) == expected


def kill_later(command, seconds):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    process.kill()
    process.wait()


def test_a_run_killed_again_and_again_accounts_for_every_prompt(work):
    run_dir, rng = work / "async-killed", random.Random(11)
    command = async_command(work, run_dir, rollouts=60, extra=["--max-staleness", "3"])
    for _ in range(8):
        kill_later(command, rng.uniform(0.4, 1.6))
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    known = fates(run_dir)
    assert sorted(known) == list(range(60 * 4)), "every prompt once, none skipped"
    for records in known.values():
        assert [record["fate"] for record in records if record["fate"] in ("trained", "filtered", "failed", "skipped")] == ["trained"]
    steps = {}
    for records in known.values():
        steps[records[-1]["step"]] = steps.get(records[-1]["step"], 0) + 1
    assert steps == dict.fromkeys(range(60), 4)


def test_half_drawn_samples_go_on_from_a_checkpoint(work):
    """Killed right behind a checkpoint, the run goes on with the tokens that it has: some samples are of versions from before it."""
    run_dir = work / "async-resumed"
    long = ["--max-staleness", "3", "--rollout-stop-token-ids", "5", "--save-interval", "4"]
    command = async_command(work, run_dir, rollouts=6, extra=long)
    command[command.index("--rollout-max-response-len") + 1] = "200"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (run_dir / "latest").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill()
    process.wait()
    checkpoint = json.loads((run_dir / "latest" / "run.json").read_text())
    open_groups = checkpoint["run"]["data_source"]["waiting"]
    assert open_groups, "groups are under way when a checkpoint is written"
    drawn = {sample["index"]: sample for group in open_groups for sample in group["samples"] if sample["response_length"]}
    assert drawn
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = 0
    for _, sample in samples(run_dir):
        before = drawn.get(sample["index"])
        if before is None:
            continue
        seen += 1
        assert sample["tokens"][: len(before["tokens"])] == before["tokens"]
        assert sample["rollout_log_probs"][: len(before["rollout_log_probs"])] == before["rollout_log_probs"]
    assert seen


CONTRADICTIONS = [
    (["--max-staleness", "1", "--max-weight-staleness", "2"], "--max-staleness", "--max-weight-staleness"),
    (["--max-weight-staleness", "2", "--max-policy-version-lag", "3"], "--max-weight-staleness 2", "--max-policy-version-lag 3"),
    (["--staleness-threshold", "2.5", "--fully-async-version-window", "3"], "--staleness-threshold", "--fully-async-version-window"),
    (["--fully-async-buffer-policy", "window_evict", "--async-order", "dispatch"], "--async-order dispatch", "--fully-async-buffer-policy window_evict"),
    (["--keep-cache-on-weight-update", "--pause-generation-mode", "retract"], "--keep-cache-on-weight-update", "--pause-generation-mode retract"),
    (["--fully-async-max-completed-samples", "1"], "--fully-async-max-completed-samples 1", "of a rollout"),
    (["--fully-async-eviction-policy", "oldest"], "--fully-async-eviction-policy", "--staleness-policy"),
    (["--pause-generation-mode", "abort", "--kv-on-update", "keep"], "--kv-on-update keep", "--pause-generation-mode abort"),
    (["--sglang-server-concurrency", "4", "--async-max-concurrent-samples", "5"], "--sglang-server-concurrency 4", "--async-max-concurrent-samples 5"),
    (["--colocate", "--rollout-num-threads", "1"], "--colocate", "--rollout-num-threads 1"),
    (["--rollout-submission-granularity", "group"], "--rollout-submission-granularity group", "sample"),
    (["--custom-async-data-buffer-path", "a.b"], "--custom-async-data-buffer-path", "--async-order"),
    (["--update-mode", "drain", "--pause-generation-mode", "abort"], "--update-mode drain", "--pause-generation-mode abort"),
    (["--update-mode", "interrupt", "--kv-on-update", "keep"], "--kv-on-update keep", "--update-mode interrupt"),
    (["--colocate", "--update-weights-interval", "2"], "--colocate", "--update-weights-interval 2"),
    (["--max-staleness", "0", "--update-weights-interval", "2"], "--max-staleness 0", "--update-weights-interval 2"),
    (["--staleness-policy", "correct"], "--staleness-policy correct", "--use-tis"),
    (["--offload-rollout"], "--offload-rollout", "--colocate"),
    (["--colocate", "--offload-rollout", "--kv-on-update", "keep"], "--offload-rollout", "--kv-on-update keep"),
    (["--debug-rollout-only"], "train-async", "--debug-rollout-only"),
]


@pytest.mark.parametrize(("extra", "one", "other"), CONTRADICTIONS, ids=[pair[1] + " " + pair[2] for pair in CONTRADICTIONS])
def test_contradictions_are_refused_with_both_names(work, extra, one, other):
    done = run_slime(async_command(work, work / "async-contradiction", extra=extra))
    assert done.returncode == 2
    assert one in done.stderr and other in done.stderr


def test_flags_of_asynchronous_runs_are_refused_in_synchronous_ones(work):
    command = train_command(work, work / "async-not", extra=["--async-order", "finish", "--max-staleness", "2"])
    done = run_slime(command)
    assert done.returncode == 2
    assert "--async-order" in done.stderr and "--max-staleness 2" in done.stderr and "slime train-async" in done.stderr


def test_train_async_is_in_the_list_of_commands():
    assert "train-async" in run_slime([str(SLIME), "--help"]).stdout


@pytest.mark.parametrize("extra", [[], ["--update-weights-interval", "2", "--keep-old-actor"]], ids=["plain", "old_actor"])
def test_a_replay_arrives_at_the_same_weights(work, extra):
    run_dir = work / f"async-replayed{len(extra)}"
    done = run_slime(async_command(work, run_dir, extra=["--max-staleness", "2", "--async-order", "finish", *extra]))
    assert done.returncode == 0, done.stdout + done.stderr
    again = run_slime([str(SLIME), "replay", str(run_dir)])
    assert again.returncode == 0, again.stdout + again.stderr
    assert "the weights are equal" in again.stdout
    # A rollout that was changed is noticed.
    path = run_dir / "rollouts" / "step_000003.jsonl"
    rows = [json.loads(line) for line in path.open()]
    for row in rows:
        row["reward"] = row["index"] % 2
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    other = run_slime([str(SLIME), "replay", str(run_dir), "--run-dir", str(run_dir) + "-other"])
    assert other.returncode == 1 and "the weights are different" in other.stdout


def test_tokens_of_older_weights_do_not_pass_a_bound_that_a_restart_sets(work):
    """`slime train --partial-rollout` knows no bound: what it had begun has older tokens than an on-policy run may train."""
    run_dir = work / "async-after-april"
    april = async_command(work, run_dir, rollouts=4, extra=["--partial-rollout", "--over-sampling-batch-size", "12"])
    april[1] = "train"
    done = run_slime(april)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run_slime(async_command(work, run_dir, rollouts=8, extra=["--max-staleness", "0"]))
    assert done.returncode == 0, done.stdout + done.stderr
    later = [sample for step, sample in samples(run_dir) if step >= 4]
    assert len(later) == 4 * 16
    assert max(metric(run_dir, "rollout/weight_version/lag_max")[4:]) == 0
    assert run_slime([str(SLIME), "ledger", str(run_dir)]).returncode == 0


@pytest.mark.parametrize("begun", ["async", "april"])
def test_a_synchronous_run_that_goes_on_from_another_mode_is_on_policy(work, begun):
    run_dir = work / f"async-then-sync-{begun}"
    extra = ["--max-staleness", "4"] if begun == "async" else ["--partial-rollout", "--over-sampling-batch-size", "12"]
    first = async_command(work, run_dir, rollouts=4 if begun == "april" else 40, extra=[*extra, "--save-interval", "1"])
    if begun == "april":
        first[1] = "train"
        assert run_slime(first).returncode == 0
    else:
        process = subprocess.Popen(first, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (run_dir / "latest").exists():
            time.sleep(0.02)
        process.kill()
        process.wait()
    steps = len((run_dir / "metrics.jsonl").read_text().splitlines()) + 4
    second = async_command(work, run_dir, rollouts=steps)
    second[1] = "train"
    done = run_slime(second)
    assert done.returncode == 0, done.stdout + done.stderr
    continued = int(done.stderr.split("continuing after rollout ")[1].split()[0]) if "continuing after" in done.stderr else int(done.stdout.split("continuing after rollout ")[1].split()[0])
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    lags = [row["rollout/weight_version/lag_max"] for row in rows if row["step"] > continued]
    assert lags and max(lags) == 0
    ledger = run_slime([str(SLIME), "ledger", str(run_dir)])
    assert ledger.returncode == 0, ledger.stdout


def test_weights_that_a_restart_publishes_have_a_version_of_their_own(work):
    """The first run ended between two updates; the second has an update after every step."""
    run_dir = work / "async-version"
    done = run_slime(async_command(work, run_dir, rollouts=4, extra=["--update-weights-interval", "3"]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((run_dir / "latest" / "run.json").read_text())["run"]["weight_version"] == 1
    done = run_slime(async_command(work, run_dir, rollouts=6))
    assert done.returncode == 0, done.stdout + done.stderr
    drawn = {version for step, sample in samples(run_dir) if step >= 4 for version, _ in sample["weight_versions"]}
    assert min(drawn) == 1 or min(drawn) == 2
    fresh = [row for row in (json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()) if row["step"] == 5]
    assert fresh[0]["rollout/weight_version/newest"] >= 2
    assert json.loads((run_dir / "latest" / "run.json").read_text())["run"]["weight_version"] == 4


def test_keep_old_actor_may_begin_with_a_restart(work):
    run_dir = work / "async-old-actor-later"
    assert run_slime(async_command(work, run_dir, rollouts=3)).returncode == 0
    done = run_slime(async_command(work, run_dir, rollouts=5, extra=["--keep-old-actor"]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "does not have the old actor of --keep-old-actor" in done.stdout + done.stderr

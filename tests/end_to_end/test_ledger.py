"""`slime ledger`: whatever a run does and whenever it is killed, every prompt and every token is accounted for."""

import itertools
import json
import random
import shutil
import subprocess
import time

import pytest
from conftest import SLIME, run_slime, sft_command, train_command

FILTER = ["--dynamic-sampling-filter-path", "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"]
ENDS = [str(token) for token in range(44)]  # one in six tokens ends a response: lengths differ a lot


def command_for(work, run_dir, *, rollouts, extra, form="train-async"):
    command = train_command(work, run_dir, rollouts=rollouts)
    command[1] = form
    for flag, value in (("--n-samples-per-prompt", "2"), ("--rollout-max-response-len", "40"), ("--global-batch-size", "8")):
        command[command.index(flag) + 1] = value
    return [*command, "--rollout-stop-token-ids", *ENDS, *extra]


def audit(run_dir, *more):
    done = run_slime([str(SLIME), "ledger", str(run_dir), "--json", *more])
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def check_all_trained(run_dir, steps):
    """At the end: each prompt that was given out has one fate or is pending, and what was trained is what the rollout files hold."""
    found = audit(run_dir)
    at = found["checkpoint"]
    assert at["step"] == steps - 1 and found["records_behind_checkpoint"] == 0
    assert at["prompts"]["trained"] == steps * 4
    tokens, prompts = at["tokens"], at["prompts"]
    assert tokens["generated"] == sum(number for name, number in tokens.items() if name != "generated") > 0
    assert prompts["given_out"] == sum(number for name, number in prompts.items() if name != "given_out")
    written = 0
    for path in (run_dir / "rollouts").glob("step_*.jsonl"):
        # (splitlines() would also split at line ends of Unicode's, which responses have.)
        written += sum(json.loads(line)["response_length"] for line in path.open())
    assert tokens["trained"] == written
    return found


STEPS = 120
MOST_KILLS = 40
FORMS = {
    "suspend": ["--max-staleness", "3"],
    "drain-filter": ["--max-staleness", "1", "--update-mode", "drain", *FILTER],
    "interrupt-drop": ["--max-staleness", "2", "--update-mode", "interrupt", "--async-order", "finish", "--staleness-policy", "drop"],
    "retry-filter": ["--max-staleness", "1", "--async-order", "finish", "--staleness-policy", "retry", *FILTER],
    "correct-recompute": [
        "--max-staleness", "1", "--async-order", "finish", "--staleness-policy", "correct", "--use-tis",
        "--kv-on-update", "recompute", "--colocate",
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", ["suspend", "retry-filter"])
def test_killed_at_instants_of_the_ledger_it_accounts_for_every_prompt_and_token(work, form):
    """Each kill comes when so many bytes are new in the ledger: a few at the start of a step, more in its middle or its checkpoint."""
    sizes = itertools.cycle([100, 4000, 900, 9000, 2500, 6000])
    check_killed(work, form, lambda process, ledger, size: wait_for_size(process, ledger, size + next(sizes)))


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
def test_killed_at_random_instants_it_accounts_for_every_prompt_and_token(work, form):
    rng = random.Random(f"kills of {form}")
    check_killed(work, form, lambda process, ledger, size: time.sleep(rng.uniform(0.0, 0.4)))


def wait_for_size(process, path, size):
    while process.poll() is None and path.stat().st_size < size:
        time.sleep(0.001)


def check_killed(work, form, wait):
    """Six kills, on a machine under load more, until two fell between checkpoints; then a run to the end."""
    run_dir = work / f"ledger-killed-{form}-{time.monotonic_ns()}"
    command = command_for(work, run_dir, rollouts=STEPS, extra=["--save-interval", "3", *FORMS[form]])
    ledger = run_dir / "ledger.jsonl"
    kills = between = pending = 0
    while kills < 6 or (kills < MOST_KILLS and (between < 2 or (form == "suspend" and pending == 0))):
        size = ledger.stat().st_size if ledger.exists() else 0
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and (not ledger.exists() or ledger.stat().st_size == size):
            time.sleep(0.002)  # it starts
        wait(process, ledger, size)
        has_ended = process.poll() is not None
        process.kill()
        process.wait()
        kills += 1
        found = audit(run_dir)
        if at := found["checkpoint"]:
            pending += at["tokens"]["pending"]
            between += found["records_behind_checkpoint"] > 0
        if has_ended:
            break
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    found = check_all_trained(run_dir, STEPS)
    assert found["restarts"] >= 2 and found["rolled_back"] > 0, f"{between} of {kills} kills fell between two checkpoints"
    if form == "suspend":
        assert pending > 0, "groups were under way at a checkpoint that a restart went on from"
    if form.endswith("-filter"):
        assert found["checkpoint"]["tokens"]["filtered"] > 0


SYNC_FORMS = {
    "sync": [],
    "surplus-dropped": ["--over-sampling-batch-size", "12", *FILTER],
    "april": ["--partial-rollout", "--over-sampling-batch-size", "12", "--mask-offpolicy-in-partial-rollout", *FILTER],
    "evaluation": [],
}


@pytest.mark.parametrize("form", SYNC_FORMS)
def test_a_synchronous_run_adds_up_and_goes_on_adding_up(work, form):
    run_dir = work / f"ledger-{form}"
    extra = list(SYNC_FORMS[form])
    if form == "evaluation":  # its tokens are not of any prompt
        extra += ["--eval-prompt-data", "test", str(work / "data" / "test.jsonl"), "--eval-interval", "1"]
    done = run_slime(command_for(work, run_dir, rollouts=4, extra=extra, form="train"))
    assert done.returncode == 0, done.stdout + done.stderr
    before = check_all_trained(run_dir, 4)["checkpoint"]
    if form == "surplus-dropped":
        assert before["tokens"]["discarded"] > 0 and before["tokens"]["pending"] == 0
    if form == "april":
        assert before["tokens"]["discarded"] > 0 and before["tokens"]["pending"] > 0
    done = run_slime(command_for(work, run_dir, rollouts=6, extra=extra, form="train"))
    assert done.returncode == 0, done.stdout + done.stderr
    after = check_all_trained(run_dir, 6)["checkpoint"]
    assert after["tokens"]["generated"] > before["tokens"]["generated"]


def test_a_failed_reward_is_a_fate_with_tokens(work):
    rows = [{"prompt": f"{n}+1=", "label": "1" if n % 3 else None} for n in range(10, 60)]
    data = work / "ledger-failed.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for form in ("train", "train-async"):
        run_dir = work / f"ledger-failed-{form}"
        command = command_for(work, run_dir, rollouts=4, extra=["--streaming-data"], form=form)
        command.remove("--rollout-shuffle")
        command[command.index("--prompt-data") + 1] = str(data)
        command[command.index("--rm-type") + 1] = "math"
        done = run_slime(command)
        assert done.returncode == 0, done.stdout + done.stderr
        at = check_all_trained(run_dir, 4)["checkpoint"]
        assert at["prompts"]["failed"] > 0 and at["tokens"]["failed"] > 0


def test_a_run_that_goes_on_from_anothers_checkpoint_takes_its_open_prompts_over(work):
    first, second = work / "ledger-first", work / "ledger-second"
    extra = ["--partial-rollout", "--over-sampling-batch-size", "12"]
    done = run_slime(command_for(work, first, rollouts=3, extra=extra, form="train"))
    assert done.returncode == 0, done.stdout + done.stderr
    pending = audit(first)["checkpoint"]["tokens"]["pending"]
    assert pending > 0
    done = run_slime(command_for(work, second, rollouts=6, extra=[*extra, "--load", str(first / "checkpoints")], form="train"))
    assert done.returncode == 0, done.stdout + done.stderr
    at = audit(second)["checkpoint"]
    assert at["step"] == 5 and at["prompts"]["trained"] == 3 * 4
    assert at["tokens"]["generated"] >= pending


def test_rows_of_supervised_training_have_fates_without_tokens(work):
    run_dir = work / "ledger-sft"
    done = run_slime(sft_command(work, run_dir, work / "data" / "sft.jsonl", rollouts=2, extra=["--rollout-batch-size", "4", "--global-batch-size", "4"]))
    assert done.returncode == 0, done.stdout + done.stderr
    at = audit(run_dir)["checkpoint"]
    assert at["prompts"]["trained"] == 8
    assert at["tokens"]["generated"] == at["tokens"]["trained"] == 0


def test_rows_longer_than_the_model_are_left_out_and_told_of(work, tmp_path):
    long = {"messages": [{"role": "user", "content": "1+1=" * 200}, {"role": "assistant", "content": "2"}]}
    rows = (work / "data" / "sft.jsonl").read_text().splitlines()[:6]
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join([*rows[:3], json.dumps(long), *rows[3:]]) + "\n")
    run_dir = tmp_path / "run"
    done = run_slime(sft_command(work, run_dir, data, rollouts=3, extra=["--rollout-batch-size", "4", "--global-batch-size", "4"]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 rows are trained; left out: 1 longer_than_the_model" in done.stdout + done.stderr
    assert json.loads((run_dir / "run.json").read_text())["left_out"] == {"longer_than_the_model": 1}
    assert audit(run_dir)["checkpoint"]["prompts"]["trained"] == 12
    losses = [json.loads(line).get("train/loss") for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert all(loss is not None and loss > 0 for loss in losses)


def behind_checkpoint(run_dir):
    return (run_dir / "ledger.jsonl").read_text().split('"checkpoint"')[-1]


@pytest.fixture(scope="module")
def killed(work):
    """A run that was killed when prompts had been given out behind its checkpoint, went on, and was killed again."""
    run_dir = work / "ledger-copy"
    command = command_for(work, run_dir, rollouts=400, extra=["--max-staleness", "2", "--save-interval", "2"])
    for target in range(4, 100, 8):
        rolls_back = (run_dir / "ledger.jsonl").exists() and '"dispatched"' in behind_checkpoint(run_dir)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            latest = run_dir / "latest"
            if latest.is_symlink() and int(latest.readlink().name.split("_")[1]) >= target and '"dispatched"' in behind_checkpoint(run_dir):
                break
            time.sleep(0.005)
        process.kill()
        process.wait()
        if rolls_back:
            break
    return run_dir


def test_the_table_is_for_people_and_fits_a_screen(killed):
    done = run_slime([str(SLIME), "ledger", str(killed)])
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("restarts", "records rolled back", "checkpoint  after step", "given out, generated", "pending", "discarded", "everything adds up"):
        assert words in done.stdout
    assert len(done.stdout.splitlines()) <= 24


def test_the_path_of_an_ordinal_has_every_record_with_its_place(killed):
    lines = (killed / "ledger.jsonl").read_text().splitlines()
    records = [json.loads(line.split(" ", 1)[1]) for line in lines]
    rollback = next(at for at, record in enumerate(records) if "rollback_to" in record)
    twice = next(r["ordinal"] for r in records[:rollback] if r.get("fate") == "dispatched" and r in records[rollback:])
    path = audit(killed, "--ordinal", str(twice))["path"]
    assert [step["line"] for step in path] == [at + 1 for at, record in enumerate(records) if record.get("ordinal") == twice]
    for step in path:
        assert (killed / "ledger.jsonl").read_bytes()[step["position"] :].startswith(lines[step["line"] - 1].encode())
    assert path[0]["counts"] is False and path[-1]["counts"] is True
    done = run_slime([str(SLIME), "ledger", str(killed), "--ordinal", str(twice)])
    assert done.returncode == 0 and "[rolled back]" in done.stdout and "dispatched" in done.stdout


def test_a_lost_line_makes_the_exit_code_one_and_is_named(killed, tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    lines = (killed / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    trained = next(at for at, line in enumerate(lines) if b'"trained"' in line)
    (run_dir / "ledger.jsonl").write_bytes(b"".join(lines[:trained] + [lines[trained].replace(b'"step":', b'"stop":')] + lines[trained + 1 :]))
    done = run_slime([str(SLIME), "ledger", str(run_dir)])
    assert done.returncode == 1
    assert f"line {trained + 1} (byte {sum(map(len, lines[:trained]))}): damaged" in done.stdout
    assert "are accounted for" in done.stdout
    assert json.loads(run_slime([str(SLIME), "ledger", str(run_dir), "--json"]).stdout)["adds_up"] is False
    # Two fates.
    (run_dir / "ledger.jsonl").write_bytes(b"".join(lines[: trained + 1]) + lines[trained])
    done = run_slime([str(SLIME), "ledger", str(run_dir)])
    assert done.returncode == 1 and "after it had a final outcome" in done.stdout


def test_bad_input_is_exit_code_two(killed, tmp_path):
    for arguments, words in (
        ([str(tmp_path / "nothing")], "there is no ledger"),
        ([str(killed), "--ordinal", "999999"], "--ordinal 999999: the run never gave it out"),
        ([str(killed), "--ordinal", "x"], "--ordinal"),
        ([], "RUN_DIR"),
    ):
        done = run_slime([str(SLIME), "ledger", *arguments])
        assert done.returncode == 2, arguments
        assert words in done.stderr, done.stderr
    other = tmp_path / "run"
    shutil.copytree(killed, other, symlinks=True)
    (other / "latest" / "run.json").write_text("[1]")
    assert run_slime([str(SLIME), "ledger", str(other)]).returncode == 2


def test_ledger_is_in_the_list_of_commands():
    assert "what became of every prompt and token" in run_slime([str(SLIME), "--help"]).stdout

"""Samples without a score: rows are refused before anything is generated, samples fail with their reason, and people are
told once."""

import json

from conftest import run_slime, train_command


def rows_command(work, run_dir, rows, *, rollouts=1, extra=()):
    data = work / f"{run_dir.name}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = train_command(work, run_dir, rollouts=rollouts, extra=extra)
    command[command.index("--prompt-data") + 1] = str(data)
    command[command.index("--rm-type") + 1] = "math"
    return command


def test_labels_that_no_reward_can_use_are_named_with_their_lines(work):
    rows = [{"prompt": f"{n}+1=", "label": str(n + 1)} for n in range(10, 18)]
    rows[2]["label"] = None
    rows[5]["label"] = ""
    run_dir = work / "useless-labels"
    done = run_slime(rows_command(work, run_dir, rows))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "useless-labels.jsonl, line 3: math: the label is missing" in done.stderr
    assert "line 6: math: the label is empty" in done.stderr
    assert not run_dir.exists(), "a run that is refused before it begins leaves no folder"


def test_a_streamed_label_that_cannot_be_used_fails_its_samples(work):
    rows = [{"prompt": f"{n}+1=", "label": str(n + 1) if n % 2 else None} for n in range(10, 30)]
    run_dir = work / "streamed-labels"
    command = rows_command(work, run_dir, rows, extra=["--streaming-data"])
    command.remove("--rollout-shuffle")
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is left out: reward: math: the label is missing" in done.stdout
    fates = [json.loads(line.split(" ", 1)[1]) for line in (run_dir / "ledger.jsonl").read_text().splitlines()]
    failed = [fate for fate in fates if fate.get("fate") == "failed"]
    assert len(failed) >= 3 and all("the label is missing" in fate["reason"] for fate in failed)


def test_a_judge_that_never_answers_is_told_in_two_lines(work):
    rows = [{"prompt": f"{n}+1=", "label": "1", "metadata": {"rm_type": "remote_rm"}} for n in range(10, 90)]
    url = "http://127.0.0.1:1/score"
    extra = ["--rm-url", url, "--remote-rm-attempts", "1"]
    done = run_slime(rows_command(work, work / "no-judge", rows, extra=extra))
    assert done.returncode == 2, done.stdout + done.stderr
    told = [line for line in done.stdout.splitlines() if "left out" in line]
    assert len(told) == 2, done.stdout
    assert "cannot connect" in told[0] and "more prompts are left out like it" in told[1]


def test_a_run_in_epochs_says_when_nothing_is_left_of_it(work):
    command = train_command(work, work / "past-the-end", extra=["--num-epoch", "1", "--start-rollout-id", "99"])
    at = command.index("--num-rollout")
    del command[at : at + 2]
    done = run_slime(command)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--start-rollout-id 99: nothing is left to do, the run has 15 rollouts" in done.stderr

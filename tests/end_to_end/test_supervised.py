"""Supervised training as a user runs it: its validation loss, rows that are left out, and prompts that are lists."""

import json
import shutil

import pytest
from conftest import metric, run_slime, sft_command, train_command

BATCH = ["--rollout-batch-size", "4", "--global-batch-size", "4"]


def test_the_validation_loss_is_the_training_loss_of_the_same_rows_and_weights(work):
    rows = (work / "data" / "sft.jsonl").read_text().splitlines()[:4]
    data = work / "validation.jsonl"
    data.write_text("\n".join(rows) + "\n")
    run_dir = work / "validated"
    extra = [*BATCH, "--eval-prompt-data", "held", str(data), "--eval-interval", "1"]
    done = run_slime(sft_command(work, run_dir, data, rollouts=3, extra=extra))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "has no effect" not in done.stdout + done.stderr
    validated, trained = metric(run_dir, "eval/held/loss"), metric(run_dir, "train/loss")
    assert len(validated) == 4 and len(trained) == 3  # before training, and after each step
    assert all(abs(a - b) < 1e-4 for a, b in zip(validated, trained))
    assert validated[3] < validated[0]


def test_a_validation_set_that_does_not_fill_a_step_counts_each_row_once(work):
    rows = (work / "data" / "sft.jsonl").read_text().splitlines()
    data = work / "seven.jsonl"
    data.write_text("\n".join(rows[:7]) + "\n" + json.dumps({"messages": [{"role": "user", "content": "?"}]}) + "\n")
    run_dir = work / "seven"
    extra = [*BATCH, "--eval-prompt-data", "seven", str(data), "--eval-interval", "1"]
    done = run_slime(sft_command(work, run_dir, work / "data" / "sft.jsonl", rollouts=1, extra=extra))
    assert done.returncode == 0, done.stdout + done.stderr
    # A token for each letter, one for the opening of the box; <|im_end|> and a newline end each answer.
    answers = [json.loads(row)["messages"][-1]["content"].replace("\\boxed{", "*") for row in rows[:7]]
    assert metric(run_dir, "eval/seven/tokens")[0] == sum(len(answer) + 2 for answer in answers)
    assert metric(run_dir, "eval/seven-left_out")[0] == 1
    assert "evaluation seven: 7 rows; left out: 1 no_trained_token" in done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")
def test_a_function_that_draws_finds_messages_as_a_list(work):
    folder = work / "list-code"
    folder.mkdir()
    (folder / "draw.py").write_text(
        "async def generate(args, sample, sampling_params):\n"
        "    assert [m['role'] for m in sample.prompt] == ['user'], repr(sample.prompt)\n"
        "    sample.tokens, sample.response_length, sample.response = [65, 66, 67], 1, 'C'\n"
        "    sample.status = sample.Status.COMPLETED\n"
        "    return sample\n\n\n"
        "def reward(args, sample, **kwargs):\n"
        "    return float(sample.prompt[0]['role'] == 'user')\n"
    )
    run_dir = work / "lists"
    extra = ["--custom-generate-function-path", "draw.py:generate", "--custom-rm-path", "draw.py:reward"]
    command = train_command(work, run_dir, rollouts=1, extra=extra)
    command.remove("--apply-chat-template")
    at = command.index("--rm-type")
    del command[at : at + 2]
    done = run_slime(command, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert metric(run_dir, "rollout/raw_reward") == [1.0]

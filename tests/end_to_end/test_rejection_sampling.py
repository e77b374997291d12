"""Supervised training on what the model generated and a reward chose: inside a run, and offline through pipes."""

import json
import subprocess

import pytest
from conftest import SLIME, command_on, mean, metric, run_slime, weights

LEARNS = ["--loss-type", "sft_loss", "--calculate-per-token-loss", "--lr", "3e-3"]


@pytest.mark.parametrize(
    "choice",
    [
        ["--rejection-min-reward", "1"],
        ["--rejection-keep-best", "1"],
        ["--rejection-keep-best", "2", "--rejection-min-reward", "0.5"],
        ["--dynamic-sampling-filter-path", "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std",
         "--rejection-keep-best", "1"],
    ],
    ids=["min-reward", "best", "both", "dynamic-filter"],
)  # fmt: skip
def test_the_reward_rises(work, capitals, choice, request):
    run_dir = work / f"rejection-{request.node.callspec.id}"
    done = run_slime(command_on(work, capitals, run_dir, [*LEARNS, *choice]))
    assert done.returncode == 0, done.stdout + done.stderr
    rewards = metric(run_dir, "rollout/raw_reward")
    assert mean(rewards[-5:]) > mean(rewards[:3]) + 0.25, rewards
    accepted = metric(run_dir, "rollout/rejection/accepted_ratio")
    assert len(accepted) == 30 and 0 < min(accepted)
    if choice == ["--rejection-keep-best", "1"]:
        assert set(accepted) == {1 / 8}
    assert "no effect" not in done.stderr
    proof = run_slime([str(SLIME), "ledger", str(run_dir)])
    assert proof.returncode == 0, proof.stdout + proof.stderr


def test_a_sample_filter_of_the_users_chooses(work, capitals, tmp_path):
    (tmp_path / "choose.py").write_text(
        "def rewarded(args, groups):\n"
        "    for group in groups:\n"
        "        for sample in group:\n"
        "            sample.remove_sample = sample.reward < 1\n"
    )
    run_dir = work / "rejection-filter"
    extra = [*LEARNS, "--rollout-sample-filter-path", f"{tmp_path / 'choose.py'}:rewarded"]
    done = run_slime(command_on(work, capitals, run_dir, extra))
    assert done.returncode == 0, done.stdout + done.stderr
    rewards = metric(run_dir, "rollout/raw_reward")
    assert mean(rewards[-5:]) > mean(rewards[:3]) + 0.25, rewards


def test_it_trains_what_supervised_training_of_the_same_rows_trains(work, capitals):
    """One step on the samples that were accepted, and one on the same tokens in a dump of which the rest is cut away."""
    whole = work / "rejection-once"
    extra = [*LEARNS, "--rejection-min-reward", "1", "--save-debug-rollout-data", str(work / "rejection-dump" / "{rollout_id}.jsonl")]
    done = run_slime(command_on(work, capitals, whole, extra, rollouts=1))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (work / "rejection-dump" / "0.jsonl").read_text().splitlines()]
    assert {line["remove_sample"] for line in lines} == {True, False}
    assert all(line["remove_sample"] == (line["reward"] < 1) for line in lines)
    again = work / "rejection-again"
    extra = [*LEARNS, "--load-debug-rollout-data", str(work / "rejection-dump" / "{rollout_id}.jsonl")]
    done = run_slime(command_on(work, capitals, again, extra, rollouts=1))
    assert done.returncode == 0, done.stderr
    assert weights(again) == weights(whole)


def test_on_two_ranks_it_is_the_same(work, capitals):
    one, two = work / "rejection-one", work / "rejection-two"
    extra = [*LEARNS, "--rejection-min-reward", "1"]
    for run_dir, ranks in ((one, "1"), (two, "2")):
        done = run_slime(command_on(work, capitals, run_dir, [*extra, "--actor-num-gpus-per-node", ranks], rollouts=1))
        assert done.returncode == 0, done.stderr
    [loss], [other] = (metric(run_dir, "train/loss")[:1] for run_dir in (one, two))
    assert abs(loss - other) < 1e-5 * abs(loss)


def test_asynchronously_too(work, capitals):
    run_dir = work / "rejection-async"
    done = run_slime(command_on(work, capitals, run_dir, [*LEARNS, "--rejection-min-reward", "1", "--train-async"]))
    assert done.returncode == 0, done.stderr
    rewards = metric(run_dir, "rollout/raw_reward")
    assert mean(rewards[-5:]) > mean(rewards[:3]) + 0.15, rewards


def pipe(command, text):
    return subprocess.run([SLIME, *command], input=text, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("form", ["texts", "messages"])
def test_generate_score_and_train_fit_together(work, capitals, form):
    rows = [{**json.loads(line), "number": number} for number, line in enumerate(capitals.read_text().splitlines())]
    if form == "messages":
        rows = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in rows]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    sampling = json.dumps({"temperature": 1, "max_new_tokens": 6})
    generated = pipe(["generate", "--model", work / "model", "--device", "cpu", "--rows", "--samples", "8", "--sampling-params", sampling,
                      "--random-seed", "5"], text)  # fmt: skip
    assert generated.returncode == 0, generated.stderr
    answers = [json.loads(line) for line in generated.stdout.strip("\n").split("\n")]
    assert len(answers) == 8 * len(rows)
    first = answers[0]
    assert first["prompt"] == rows[0]["prompt"] and first["group"] == 0
    assert first["metadata"] == {**rows[0]["metadata"], "number": 0}
    assert {answer["status"] for answer in answers} <= {"completed", "truncated"}
    scored = pipe(["score", "--rm-type", "ifbench", "--rows", "--min-score", "1", "--keep-best", "2", "--keep-truncated"], generated.stdout)
    assert scored.returncode == 0, scored.stderr
    kept = [json.loads(line) for line in scored.stdout.strip("\n").split("\n")]
    assert 0 < len(kept) <= 2 * len(rows) and all(row["score"] == 1 for row in kept)
    assert f"{len(kept)} rows kept" in scored.stderr
    data = work / f"kept-{form}.jsonl"
    data.write_text(scored.stdout)
    run_dir = work / f"rejection-offline-{form}"
    done = run_slime([
        str(SLIME), "train", "--hf-checkpoint", str(work / "model"), "--prompt-data", str(data), "--input-key", "prompt",
        "--completion-key", "response", "--label-key", "label", "--metadata-key", "metadata",
        "--rollout-function-path", "slime.rollout.sft_rollout.generate_rollout", "--loss-type", "sft_loss",
        "--calculate-per-token-loss", "--num-rollout", "20", "--rollout-batch-size", "16", "--global-batch-size", "16",
        "--use-dynamic-batch-size", "--max-tokens-per-gpu", "512", "--lr", "3e-3", "--fp32", "--num-threads", "1",
        "--run-dir", str(run_dir), "--device", "cpu",
    ])  # fmt: skip
    assert done.returncode == 0, done.stderr
    losses = metric(run_dir, "train/loss")
    assert mean(losses[-3:]) < mean(losses[:3]) - 0.5, losses

    def share(model):
        """Of its responses, those that the reward accepts."""
        answered = pipe(["generate", "--model", model, "--device", "cpu", "--rows", "--samples", "8", "--random-seed", "6", "--sampling-params", sampling], text)
        assert answered.returncode == 0, answered.stderr
        scores = pipe(["score", "--rm-type", "ifbench"], answered.stdout).stdout.strip("\n").split("\n")
        return mean([json.loads(line)["score"] for line in scores])

    assert share(run_dir / "latest") > share(work / "model") + 0.1


def test_what_cannot_fit_is_refused(work):
    for command, says in (
        (["generate", "--model", work / "model", "--samples", "2"], "--samples: needs --rows"),
        (["generate", "--model", work / "model", "--rows", "--sampling-params", "[]"], "--sampling-params: should be a JSON object"),
        (["score", "--rm-type", "math", "--min-score", "1"], "need --rows"),
    ):
        done = pipe([*command, *(["--device", "cpu"] if command[0] == "generate" else [])], '{"prompt": "a"}\n')
        assert done.returncode == 2 and says in done.stderr, done.stderr
    done = pipe(["generate", "--model", work / "model", "--device", "cpu", "--rows"], '{"question": "a"}\n')
    assert done.returncode == 2 and 'standard input, line 1: no field "prompt" with the prompt (--input-key)' in done.stderr

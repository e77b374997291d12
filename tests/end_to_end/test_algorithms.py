"""Every estimator and every loss learns on the CPU: a tiny random model, a reward that any policy gradient can find."""

import json

import pytest
from conftest import command_on, mean, metric, run_slime

ESTIMATORS = {
    "grpo": [],
    "gspo": ["--eps-clip", "0.2"],
    "cispo": ["--eps-clip", "1", "--eps-clip-high", "4"],
    "reinforce_plus_plus": ["--normalize-advantages"],
    "reinforce_plus_plus_baseline": ["--normalize-advantages"],
    "rloo": [],
    "dr_grpo": [],
    "ppo": ["--normalize-advantages", "--num-critic-only-steps", "2"],
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_reward_rises_with_every_estimator(work, capitals, estimator):
    run_dir = work / f"rises-{estimator}"
    extra = ["--advantage-estimator", estimator, *ESTIMATORS[estimator], "--lr", "3e-3"]
    done = run_slime(command_on(work, capitals, run_dir, extra))
    assert done.returncode == 0, done.stdout + done.stderr
    rewards = metric(run_dir, "rollout/raw_reward")
    assert mean(rewards[-5:]) > mean(rewards[:3]) + 0.25, rewards


@pytest.mark.parametrize(
    "extra",
    [
        ["--use-tis"],
        ["--use-tis", "--custom-tis-function-path", "slime.backends.megatron_utils.loss.icepop_function"],
        ["--use-tis", "--custom-tis-function-path", "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp",
         "--use-rs", "--rs-veto-threshold", "1e-4", "--tis-mode", "clip"],
        ["--use-opsm", "--global-batch-size", "16"],
        ["--use-kl-loss", "--kl-loss-coef", "0.001", "--kl-loss-type", "low_var_kl", "--ref-update-interval", "4"],
        ["--rollout-top-p", "0.9"],
        ["--pg-loss-type", "reinforce", "--use-tis", "--use-rollout-logprobs"],
        ["--use-score-centering", "--score-centering-top-k", "8"],
        ["--score-centering-top-k", "16", "--use-score-centering", "--use-tis", "--global-batch-size", "16"],
        ["--rollout-top-p", "0.8", "--use-score-centering", "--use-tis",
         "--custom-tis-function-path", "slime.backends.megatron_utils.loss.icepop_function"],
        ["--get-mismatch-metrics"],
        ["--keep-old-actor"],
        ["--overlong-buffer-len", "2"],
        ["--freeze-params-name-list", "mlp"],
        ["--reset-optimizer-states"],
        ["--streaming-data"],
    ],
    ids=lambda extra: extra[0].strip("-") + ("-" + extra[2].split(".")[-1] if len(extra) > 2 and "." in extra[2] else ""),
)  # fmt: skip
def test_corrections_and_options_run_and_learn(work, capitals, extra, request):
    run_dir = work / request.node.callspec.id
    command = command_on(work, capitals, run_dir, ["--lr", "3e-3", *extra])
    if "--streaming-data" in extra:
        command.remove("--rollout-shuffle")
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    rewards = metric(run_dir, "rollout/raw_reward")
    assert mean(rewards[-5:]) > mean(rewards[:3]) + 0.15, rewards


def test_the_critic_explains_most_of_the_returns_in_the_end(work):
    """Sums always score 1 and differences 0, so returns can be told from the prompt and from nothing else."""
    def capitals(count, relation):
        return {"instruction_id_list": ["change_case:capital_word_frequency"],
                "kwargs": [{"capital_frequency": count, "capital_relation": relation}]}

    rows = [{"prompt": f"{n}{sign}{n}=", "metadata": capitals(1000, relation)}
            for n in range(10, 42) for sign, relation in (("+", "less than"), ("-", "at least"))]
    data = work / "sure.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_dir = work / "critic"
    extra = ["--advantage-estimator", "ppo", "--normalize-advantages", "--num-critic-only-steps", "2", "--lr", "1e-3"]
    done = run_slime(command_on(work, data, run_dir, extra, rollouts=60))
    assert done.returncode == 0, done.stdout + done.stderr
    explained = metric(run_dir, "rollout/value_explained_variance")
    assert len(explained) == 60
    # A batch in which all returns are the same has no variance to explain: the median passes over those.
    assert sorted(explained[-10:])[5] > 0.5, explained
    losses = metric(run_dir, "train/critic-value_loss")
    assert losses[-1] < losses[0]


def row_command(work, run_dir, data, extra):
    return command_on(work, data, run_dir, extra, rollouts=12)


def test_preferences_are_learnt(work):
    rows = [{"prompt": f"{n}+{n}=", "chosen": str(2 * n), "rejected": str(2 * n + 1)} for n in range(10, 42)]
    data = work / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_dir = work / "preferences"
    command = row_command(work, run_dir, data, ["--loss-type", "dpo_loss", "--lr", "1e-3"])
    command[command.index("--global-batch-size") + 1] = "4"
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    losses = metric(run_dir, "train/loss")
    assert abs(losses[0] - 0.6931) < 1e-3
    assert losses[-1] < losses[0] - 0.01, losses
    assert metric(run_dir, "train/rewards/accuracies")[-1] > 0.5


def test_distillation_reaches_its_teachers_score(work, capitals):
    """The task's reward is 1 whatever the student says, so all it can learn from is the teacher; evaluation has the real one."""
    grpo = work / "rises-grpo"
    assert (grpo / "latest").exists(), "the teacher is the model that learnt with grpo"
    teachers_score = mean(metric(grpo, "rollout/raw_reward")[-5:])
    rows = [json.loads(line) for line in capitals.read_text().splitlines()]
    for row in rows:
        row["metadata"]["kwargs"] = [{"capital_frequency": 1000, "capital_relation": "less than"}]
    data = work / "indifferent.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_dir = work / "distilled"
    extra = ["--use-opd", "--opd-type", "megatron", "--opd-teacher-load", str(grpo / "latest"), "--lr", "3e-3",
             "--eval-prompt-data", "capitals", str(capitals), "--eval-interval", "20", "--eval-temperature", "1",
             "--n-samples-per-eval-prompt", "4"]  # fmt: skip
    done = run_slime(command_on(work, data, run_dir, extra, rollouts=60))
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(metric(run_dir, "rollout/raw_reward")) == {1}
    gap = metric(run_dir, "rollout/opd_reverse_kl")
    assert mean(gap[-5:]) < 0.2 * mean(gap[:3]), gap
    scores = metric(run_dir, "eval/capitals")
    assert scores[0] < 0.6 * teachers_score, (scores, teachers_score)
    assert scores[-1] > 0.95 * teachers_score, (scores, teachers_score)


def test_evaluation_reads_a_file_of_data_sets(work, capitals):
    config = work / "eval.yaml"
    config.write_text(
        "eval:\n  defaults: {max_response_len: 4, temperature: 0}\n  datasets:\n"
        f"    - {{name: greedy, path: '{capitals}@[:4]'}}\n"
        f"    - {{name: drawn, path: '{capitals}@[:4]', temperature: 1.0, n_samples_per_eval_prompt: 4}}\n"
    )
    run_dir = work / "evaluated"
    extra = ["--eval-config", str(config), "--eval-interval", "1", "--log-passrate"]
    done = run_slime(command_on(work, capitals, run_dir, extra, rollouts=1))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(metric(run_dir, "eval/greedy")) == 2
    assert len(metric(run_dir, "eval/drawn-pass@4")) == 2
    assert not metric(run_dir, "eval/greedy-pass@1")

"""--rollout-precision fp8: the engine's matrices are codes, made of the trained weights at each update."""

import json

import pytest
from conftest import SLIME, mean, metric, run_slime, train_command

CODES = ["--rollout-precision", "fp8"]
MISMATCH = "train/train_rollout_k3"


def trained(work, name, extra, rollouts=4):
    run_dir = work / f"precision-{name}"
    done = run_slime(train_command(work, run_dir, rollouts=rollouts, extra=["--seed", "7", *extra]))
    assert done.returncode == 0, done.stdout + done.stderr
    return run_dir, done.stdout + done.stderr


def test_the_engine_has_the_trained_weights_within_their_rounding(work):
    plain, _ = trained(work, "plain", [])
    codes, said = trained(work, "codes", CODES)
    assert "--rollout-precision fp8: without --use-tis" in said
    assert "  k3 " in said
    assert max(metric(plain, MISMATCH)) < 1e-7
    mismatch = metric(codes, MISMATCH)
    assert len(mismatch) == 4
    assert all(1e-7 < k3 < 2e-3 for k3 in mismatch), mismatch
    assert metric(codes, "train/grad_norm")[0] == pytest.approx(metric(plain, "train/grad_norm")[0], rel=0.5)


def test_the_engine_follows_the_trained_weights(work):
    # How far the policy has moved from its first weights, by the same estimate: an engine that kept those would be that far.
    moved = ["--lr", "1e-2", "--use-kl-loss", "--kl-loss-coef", "1e-9", "--kl-loss-type", "k3"]
    codes, _ = trained(work, "moved", [*CODES, *moved])
    assert metric(codes, "train/kl_loss")[-1] > 20 * metric(codes, MISMATCH)[-1] > 0


def test_a_correction_needs_no_warning_and_the_other_name_is_understood(work):
    run_dir, said = trained(work, "corrected", ["--sglang-quantization", "fp8", "--use-tis"], rollouts=2)
    assert "without --use-tis" not in said
    assert metric(run_dir, MISMATCH)[-1] > 1e-7
    assert all(abs(weight - 1) < 0.1 for weight in metric(run_dir, "train/tis"))


@pytest.mark.parametrize("turns", [[], ["--colocate"]])
def test_codes_beside_a_trainer_and_in_turns_with_it(work, turns):
    run_dir = work / f"precision-async-{len(turns)}"
    command = train_command(work, run_dir, rollouts=3, extra=[*CODES, *turns, "--use-tis"])
    command[1] = "train-async"
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(metric(run_dir, MISMATCH)) == 3


def test_responses_alone_have_codes_and_no_second_network(work):
    def drawn(name, extra):
        run_dir, _ = trained(work, name, ["--debug-rollout-only", *extra], rollouts=1)
        rows = (run_dir / "rollouts" / "step_000000.jsonl").read_text().splitlines()
        return [logprob for row in rows for logprob in json.loads(row)["rollout_log_probs"]]

    plain, codes = drawn("only-plain", []), drawn("only-codes", CODES)
    assert plain != codes
    assert abs(mean(plain) - mean(codes)) < 0.3


@pytest.mark.parametrize(
    "extra, words",
    [
        (["--rollout-num-gpus", "2"], "--rollout-precision fp8: needs an engine in the process that trains"),
        (["--actor-num-gpus-per-node", "2"], "--rollout-precision fp8: needs an engine in the process that trains"),
        (["--rollout-precision", "int4"], "--rollout-precision int4"),
    ],
)
def test_what_it_cannot_be_is_refused_before_the_model_is_read(work, extra, words):
    done = run_slime([str(SLIME), *train_command(work, work / "precision-refused", rollouts=1, extra=[*CODES, *extra])[1:]])
    assert done.returncode != 0
    assert words in done.stdout + done.stderr

"""--rollout-precision fp8: the engine's matrices are codes, made of the trained weights at each update."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT, SLIME, mean, metric, run_slime, train_command

CODES = ["--rollout-precision", "fp8"]
MISMATCH = "train/train_rollout_k3"
CHECK = "--check-weight-update-equal"


def trained(work, name, extra, rollouts=4):
    run_dir = work / f"precision-{name}"
    command = train_command(work, run_dir, rollouts=rollouts, extra=["--seed", "7", *extra])
    if "--bf16" in extra:
        command.remove("--fp32")
    done = run_slime(command)
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


def with_model(work, folder, hidden):
    """The same data in `folder`, with a model of this width."""
    command = [sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model", "--hidden", str(hidden)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (folder / "data").symlink_to(work / "data")
    return folder


@pytest.fixture(scope="module")
def blocks(work, tmp_path_factory):
    """A model of which two ranks hold whole blocks of 128 x 128."""
    return with_model(work, tmp_path_factory.mktemp("blocks"), 512)


def checked(folder, name, extra, rollouts=3, least=1e-7):
    """A run that compares the engines' codes with those of the trainer's weights, before the first step and behind it."""
    run_dir, said = trained(folder, name, [*CODES, "--use-tis", CHECK, *extra], rollouts)
    assert said.count(CHECK + ": ") == 2, said
    assert len(metric(run_dir, MISMATCH)) == rollouts
    assert all(least <= k3 < 2e-2 for k3 in metric(run_dir, MISMATCH)), metric(run_dir, MISMATCH)
    return run_dir


def tokens_of_step(run_dir, step):
    rows = (run_dir / "rollouts" / f"step_{step:06}.jsonl").read_text().splitlines()
    samples = [json.loads(row) for row in rows]
    return sorted((sample["index"], sample["tokens"]) for sample in samples)


def test_an_engine_in_the_trainers_process_has_codes_of_its_weights(work):
    checked(work, "check-here", [])


def test_engines_elsewhere_are_sent_codes_and_draw_what_one_engine_draws(blocks):
    elsewhere = ["--rollout-num-gpus", "2", "--bf16"]
    here = checked(blocks, "here", ["--bf16"])
    apart = checked(blocks, "apart", elsewhere)
    assert tokens_of_step(apart, 0) == tokens_of_step(here, 0)
    plain, _ = trained(blocks, "plain-apart", elsewhere, rollouts=3)
    sent, whole = (metric(run_dir, "perf/update_weights_wire_bytes") for run_dir in (apart, plain))
    assert sent[0] == whole[0] == 0, "engines begin with the weights of the first step"
    assert len(sent) == len(whole) == 3
    # The embedding, which is plain, is a thirtieth of this model.
    assert all(0.5 < codes / numbers < 0.535 for codes, numbers in zip(sent[1:], whole[1:])), (sent, whole)


def test_an_engine_of_two_ranks_has_the_codes_of_one(blocks):
    ranks = ["--rollout-num-gpus", "2", "--rollout-num-gpus-per-engine", "2"]
    one, two = checked(blocks, "one-rank", ["--rollout-num-gpus", "1"]), checked(blocks, "two-ranks", ranks)
    assert tokens_of_step(two, 0) == tokens_of_step(one, 0)


TRAINERS = {
    "the first of two ranks": [],
    "each of two ranks": ["--colocate", "--rollout-num-gpus", "2"],
    "the first of two ranks with slices": ["--tensor-model-parallel-size", "2"],
    "each of two ranks with slices": ["--tensor-model-parallel-size", "2", "--colocate", "--rollout-num-gpus", "2"],
    "both ranks with slices": [
        *("--tensor-model-parallel-size", "2", "--colocate", "--rollout-num-gpus", "2"),
        *("--rollout-num-gpus-per-engine", "2"),
    ],
    "both stages": ["--pipeline-model-parallel-size", "2", "--colocate", "--rollout-num-gpus", "2", "--rollout-num-gpus-per-engine", "2"],
    "a process of its own": ["--tensor-model-parallel-size", "2", "--rollout-num-gpus", "1"],
}


@pytest.mark.parametrize("engine", TRAINERS)
def test_ranks_that_train_bring_codes_to_an_engine_over(blocks, engine):
    checked(blocks, "trainers-" + engine.replace(" ", "-"), ["--actor-num-gpus-per-node", "2", *TRAINERS[engine]])


def test_an_asynchronous_run_sends_codes_while_engines_draw(blocks):
    run_dir = blocks / "precision-apart-async"
    command = train_command(blocks, run_dir, rollouts=3, extra=[*CODES, "--rollout-num-gpus", "2", "--use-tis", CHECK])
    command[1] = "train-async"
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count(CHECK + ": ") == 2


ADAPTER_ENGINES = {
    "here": [],
    "elsewhere": ["--rollout-num-gpus", "1"],
    "elsewhere, of two ranks": ["--rollout-num-gpus", "2", "--rollout-num-gpus-per-engine", "2"],
    "over the first of two ranks that train": ["--actor-num-gpus-per-node", "2"],
    "elsewhere, with two ranks that train": ["--actor-num-gpus-per-node", "2", "--rollout-num-gpus", "1"],
}


@pytest.mark.parametrize("engines", ADAPTER_ENGINES)
def test_engines_add_adapters_to_codes(blocks, engines):
    extra = ["--lora-rank", "4", "--lr", "1e-2", *ADAPTER_ENGINES[engines]]
    run_dir = checked(blocks, "adapters-" + engines.replace(" ", "-").replace(",", ""), extra)
    if engines != "here":
        assert tokens_of_step(run_dir, 0) == tokens_of_step(blocks / "precision-adapters-here", 0)


def test_a_base_of_codes_is_coded_anew_for_engines_elsewhere(work, tmp_path):
    # What is trained are the numbers that its codes mean, in float32; engines get the codes of those, which mean the same at first.
    base = tmp_path / "base"
    base.mkdir()
    done = run_slime([str(SLIME), "export", str(work / "model"), str(base / "model"), "--dtype", "fp8"])
    assert done.returncode == 0, done.stdout + done.stderr
    (base / "data").symlink_to(work / "data")
    checked(base, "coded-base", ["--rollout-num-gpus", "1"], least=0)


@pytest.mark.parametrize(
    "extra, words",
    [
        (["--rollout-num-gpus", "2", "--update-weight-mode", "delta"], "--rollout-precision fp8 and --update-weight-mode delta"),
        (
            ["--rollout-num-gpus", "2", "--update-weight-transport", "disk", "--update-weight-disk-dir", "weights"],
            "--rollout-precision fp8 and --update-weight-transport disk",
        ),
        (["--rollout-precision", "int4"], "--rollout-precision int4"),
    ],
)
def test_what_it_cannot_be_is_refused_before_the_model_is_read(work, extra, words):
    done = run_slime([str(SLIME), *train_command(work, work / "precision-refused", rollouts=1, extra=[*CODES, *extra])[1:]])
    assert done.returncode != 0
    assert words in done.stdout + done.stderr, done.stdout + done.stderr


def test_ranks_that_would_cut_blocks_are_refused_with_what_works(work, tmp_path):
    # Of 128 rows of queries each of two ranks would have 64.
    folder = with_model(work, tmp_path, 128)
    ranks = ["--rollout-num-gpus", "2", "--rollout-num-gpus-per-engine", "2"]
    done = run_slime(train_command(folder, tmp_path / "run", rollouts=1, extra=[*CODES, *ranks]))
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "model.layers.0.self_attn.q_proj.weight: rows 0 to 64 of 128 cut" in said, said
    assert "ranks of an engine hold whole blocks of 128: use 1" in said, said

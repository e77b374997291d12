"""Runs whose engines draft with the model's own layer (`--rollout-drafts mtp`): they are the run without drafts, to the bit."""

import json
import struct
import subprocess
import sys

import pytest
from conftest import ROOT, metric, numbers_that_repeat, planned, run_slime, sizes_in, train_command, weights

# Near-greedy samples of this model repeat their last token, which is what its draft layer hands on.
LONG = ["--rollout-temperature", "0.01"]
ALWAYS = ["--rollout-drafts", "mtp", "--rollout-draft-always"]
EAGLE = ["--sglang-speculative-algorithm", "EAGLE", "--sglang-speculative-num-steps", "3", "--sglang-speculative-eagle-topk", "1"]
PLACES = {
    "here": [],
    "elsewhere": ["--rollout-num-gpus", "1"],
    "two ranks": ["--rollout-num-gpus", "2", "--rollout-num-gpus-per-engine", "2"],
}
DRAFTS = {
    "where they pay": ["--rollout-drafts", "mtp"],
    "always": ALWAYS,
    "one": [*ALWAYS, "--rollout-draft-tokens", "1"],
    "texts too": ["--rollout-drafts", "suffix+mtp", "--rollout-draft-always"],
    "SGLang's words": [*EAGLE, "--sglang-speculative-num-draft-tokens", "4", "--rollout-draft-always"],
    "short chunks, no shared prefixes": [*ALWAYS, "--sglang-chunked-prefill-size", "5", "--sglang-disable-radix-cache"],
}
NOT_COMPARED = ("generation_seconds", "cached_tokens", "spec_info")
OF_DRAFTS = ("rollout/spec_accept_rate", "rollout/spec_accept_length")
OF_CACHE = ("rollout/prefix_cache_hit_rate", "rollout/avg_cached_tokens_per_sample")


@pytest.fixture(scope="module")
def drafting(work, tmp_path_factory):
    """A folder like `work`, whose model has a draft layer."""
    folder = tmp_path_factory.mktemp("draft_layer")
    made = [sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model", "--draft-layer", "--hidden", "128"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    (folder / "data").symlink_to(work / "data")
    return folder


def run(folder, run_dir, extra, rollouts=3):
    command = train_command(folder, run_dir, rollouts=rollouts)
    command[command.index("--rollout-max-response-len") + 1] = "30"
    done = run_slime([*command, *LONG, *extra])
    assert done.returncode == 0, done.stdout + done.stderr
    return run_dir


def lines(run_dir):
    return [json.loads(line) for path in sorted((run_dir / "rollouts").glob("step_*.jsonl")) for line in path.open()]


def samples(run_dir):
    return [{name: value for name, value in line.items() if name not in NOT_COMPARED} for line in lines(run_dir)]


def metrics_but_drafts(run_dir):
    return {
        step: {name: value for name, value in row.items() if name not in OF_DRAFTS + OF_CACHE} for step, row in numbers_that_repeat(run_dir).items()
    }


def check_same(drafted, plain):
    assert samples(drafted) == samples(plain)
    assert weights(drafted) == weights(plain)
    assert metrics_but_drafts(drafted) == metrics_but_drafts(plain)


def tensors(path):
    """Name to dtype and bytes, of a weight file."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: (entry["dtype"], data[8 + size + entry["data_offsets"][0] : 8 + size + entry["data_offsets"][1]]) for name, entry in header.items()
    }


def num_kept(run_dir):
    return sum(line["spec_info"]["spec_accept_token_num"] for line in lines(run_dir))


def draft_layer(folder):
    """The layer's tensors in the weight files of a folder."""
    found = {}
    for path in folder.glob("*.safetensors"):
        found |= {name: value for name, value in tensors(path).items() if ".mtp_layers." in name}
    return found


@pytest.fixture(scope="module")
def plain(drafting, tmp_path_factory):
    """Runs without drafts, by the place of their engine; each is made once."""
    made = {}

    def of(place):
        if place not in made:
            made[place] = run(drafting, tmp_path_factory.mktemp("plain") / "run", PLACES[place])
        return made[place]

    return of


@pytest.mark.parametrize("how", DRAFTS)
def test_a_run_with_a_draft_layer_is_the_run_without(drafting, plain, tmp_path, how):
    drafted = run(drafting, tmp_path / "run", DRAFTS[how])
    check_same(drafted, plain("here"))
    if how != "where they pay":  # on a processor that may be nowhere
        assert num_kept(drafted) > 0
        assert max(metric(drafted, "rollout/spec_accept_length")) > 1
    most = {"one": 1, "SGLang's words": 3}.get(how, 7)
    assert all(line["spec_info"]["spec_draft_token_num"] <= most * line["spec_info"]["spec_verify_ct"] for line in lines(drafted))


@pytest.mark.parametrize("place", ["elsewhere", "two ranks"])
def test_engines_in_other_processes_have_the_layer_too(drafting, plain, tmp_path, place):
    drafted = run(drafting, tmp_path / "run", [*PLACES[place], *ALWAYS, "--check-weight-update-equal"])
    check_same(drafted, plain(place))
    assert num_kept(drafted) > 0


def test_the_layer_is_saved_as_it_was_and_weights_are_those_of_the_trainer(drafting, tmp_path):
    drafted = run(drafting, tmp_path / "run", [*ALWAYS, "--check-weight-update-equal"])
    checkpoints = sorted((drafted / "checkpoints").glob("iter_*"))
    assert checkpoints
    before = draft_layer(drafting / "model")
    assert len(before) == 16
    for checkpoint in checkpoints:
        assert draft_layer(checkpoint) == before
    # And a run that goes on from there drafts with it.
    command = train_command(drafting, drafted, rollouts=4, extra=[*LONG, *ALWAYS])
    command[command.index("--rollout-max-response-len") + 1] = "30"
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "continuing after rollout" in done.stdout + done.stderr
    assert num_kept(drafted) > 0


def test_engine_and_trainer_agree_to_the_bit(drafting, tmp_path):
    drafted = run(drafting, tmp_path / "run", ["--true-on-policy", *ALWAYS], rollouts=2)
    differences = metric(drafted, "train/train_rollout_logprob_abs_diff")
    assert differences and not any(differences)
    assert num_kept(drafted) > 0


def test_a_run_that_only_generates_drafts_too(drafting, tmp_path):
    drafted = run(drafting, tmp_path / "drafted", ["--debug-rollout-only", *ALWAYS])
    plain = run(drafting, tmp_path / "plain", ["--debug-rollout-only"])
    assert samples(drafted) == samples(plain)
    assert num_kept(drafted) > 0


def test_where_there_is_no_layer_a_line_says_so(work, tmp_path):
    for words in (["--rollout-drafts", "mtp"], EAGLE):
        done = run_slime([*train_command(work, tmp_path / "run", extra=words), "--dry-run"])
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{words[0]} has no effect" in done.stdout + done.stderr


TRAINED = ["--enable-mtp-training", "--mtp-num-layers", "1", "--mtp-loss-scaling-factor", "0.2"]


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_the_layer_is_trained_beside_a_policy_that_does_not_know_of_it(drafting, tmp_path, place):
    # The norm of all gradients bounds each of them: without that bound the policy's are its own.
    bare = ["--clip-grad", "0", *PLACES[place]]
    plain = run(drafting, tmp_path / "plain", bare)
    trained = run(drafting, tmp_path / "trained", [*bare, *TRAINED, *ALWAYS, "--check-weight-update-equal"])
    assert samples(trained) == samples(plain)
    before, after = tensors(plain / "latest" / "model.safetensors"), tensors(trained / "latest" / "model.safetensors")
    assert before.keys() == after.keys()
    layer = {name for name in before if ".mtp_layers." in name}
    assert all(after[name] == before[name] for name in before.keys() - layer)
    assert len(layer) == 16 and all(after[name] != before[name] for name in layer if not name.endswith("k_proj.bias"))
    losses = metric(trained, "train/mtp_loss")
    assert len(losses) == 3 and losses[-1] < losses[0]
    assert num_kept(trained) > 0


def test_a_trained_layer_goes_on_from_a_checkpoint(drafting, tmp_path):
    whole = run(drafting, tmp_path / "whole", [*TRAINED, *ALWAYS], rollouts=3)
    parts = run(drafting, tmp_path / "parts", [*TRAINED, *ALWAYS], rollouts=2)
    command = train_command(drafting, parts, rollouts=3, extra=[*LONG, *TRAINED, *ALWAYS])
    command[command.index("--rollout-max-response-len") + 1] = "30"
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert weights(parts) == weights(whole)


def test_a_run_that_begins_to_train_the_layer_has_no_moments_of_it(drafting, tmp_path):
    run(drafting, tmp_path / "run", [], rollouts=1)
    command = train_command(drafting, tmp_path / "run", rollouts=2, extra=[*LONG, *TRAINED])
    command[command.index("--rollout-max-response-len") + 1] = "30"
    refused = run_slime(command)
    assert refused.returncode != 0
    assert "--no-load-optim" in refused.stdout + refused.stderr
    done = run_slime([*command, "--no-load-optim"])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_layer_that_is_not_there_is_not_trained(work, tmp_path):
    for how in ([], ["--dry-run"]):
        done = run_slime(train_command(work, tmp_path / "run", rollouts=1, extra=[*TRAINED, *how]))
        assert done.returncode != 0
        assert "--enable-mtp-training: config.json tells of no draft layer" in done.stdout + done.stderr


def test_a_plan_counts_the_layer_or_says_why_it_does_not(work, drafting):
    plain, said = planned(drafting)
    assert plain["draft_bytes"] == 0 and said == ""
    numbers = sum(size for name, size in sizes_in(drafting / "model").items() if name.startswith("model.mtp_layers."))
    for words in (["--rollout-drafts", "mtp"], EAGLE, ["--enable-mtp-training"]):
        counted, said = planned(drafting, *words)
        assert counted["draft_bytes"] == 2 * numbers and said == ""
        assert counted["weights_bytes"] == plain["weights_bytes"] + 2 * numbers
        assert counted["tokens"] < plain["tokens"]
    counted, said = planned(work, "--rollout-drafts", "mtp")
    assert counted["draft_bytes"] == 0
    assert "slime plan: --rollout-drafts mtp: no layer: config.json tells of no draft layer" in said

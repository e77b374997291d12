"""Runs whose engines draft (`--rollout-drafts suffix`): responses, log-probs and weights are those of the run without drafts, to the bit."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT, metric, numbers_that_repeat, run_slime, train_command, weights

# Near-greedy samples of a random model repeat themselves and one another, so that many guesses are right.
LONG = ["--rollout-max-response-len", "40", "--rollout-temperature", "0.01"]
ALWAYS = ["--rollout-drafts", "suffix", "--rollout-draft-always"]
PLACES = {
    "elsewhere": ["--rollout-num-gpus", "1"],
    "two ranks": ["--rollout-num-gpus", "2", "--rollout-num-gpus-per-engine", "2"],
}
DRAFTS = {
    "where they pay": ["--rollout-drafts", "suffix"],
    "always": ALWAYS,
    "one": [*ALWAYS, "--rollout-draft-tokens", "1"],
    "few at a time": [*ALWAYS, "--sglang-max-running-requests", "3"],
    "few texts": [*ALWAYS, "--rollout-draft-text-mb", "1"],
    "SGLang's words": ["--sglang-speculative-algorithm", "NGRAM", "--sglang-speculative-num-draft-tokens", "4", "--rollout-draft-always"],
}
OF_TIME = ("generation_seconds", "cached_tokens", "spec_info")
OF_DRAFTS = ("rollout/spec_accept_rate", "rollout/spec_accept_length")
OF_CACHE = ("rollout/prefix_cache_hit_rate", "rollout/avg_cached_tokens_per_sample")
TURNS = """
from slime.utils.http_utils import post

async def generate(args, sample, sampling_params):
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    for turn in range(3):
        params = {**sampling_params, "max_new_tokens": 12, "ignore_eos": True}
        output = await post(url, {"input_ids": sample.tokens, "sampling_params": params, "return_logprob": True})
        drawn = output["meta_info"]["output_token_logprobs"]
        sample.append_response_tokens(args, tokens=[entry[1] for entry in drawn], log_probs=[entry[0] for entry in drawn],
                                      meta_info=output["meta_info"], text=output["text"])
        if turn < 2:
            sample.append_response_tokens(args, tokens=[11, 12, 13], trainable=False)
    sample.status = sample.Status.TRUNCATED
    return sample
"""


def run(work, run_dir, extra, rollouts=4):
    command = train_command(work, run_dir, rollouts=rollouts)
    for flag, value in zip(LONG[::2], LONG[1::2], strict=True):
        if flag in command:
            command[command.index(flag) + 1] = value
        else:
            command += [flag, value]
    done = run_slime([*command, *extra])
    assert done.returncode == 0, done.stdout + done.stderr
    return run_dir


def lines(run_dir):
    return [json.loads(line) for path in sorted((run_dir / "rollouts").glob("step_*.jsonl")) for line in path.open()]


def samples(run_dir):
    """Tokens, log-probs, rewards and all else that does not tell how they came to be."""
    return [{name: value for name, value in line.items() if name not in OF_TIME} for line in lines(run_dir)]


def metrics_but_drafts(run_dir):
    return {
        step: {name: value for name, value in row.items() if name not in OF_DRAFTS + OF_CACHE} for step, row in numbers_that_repeat(run_dir).items()
    }


def check_same(drafted, plain):
    assert samples(drafted) == samples(plain)
    assert weights(drafted) == weights(plain)
    assert metrics_but_drafts(drafted) == metrics_but_drafts(plain)


@pytest.fixture(scope="module")
def wide(work, tmp_path_factory):
    """The same with a model of two key-value heads."""
    folder = tmp_path_factory.mktemp("wide")
    maker = [sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model", "--hidden", "128"]
    subprocess.run(maker, check=True, stdout=subprocess.DEVNULL)
    (folder / "data").symlink_to(work / "data")
    return folder


@pytest.fixture(scope="module")
def plain(work, tmp_path_factory):
    """A run without drafts."""
    return run(work, tmp_path_factory.mktemp("plain") / "run", [])


def test_without_the_flag_nothing_is_drafted(plain):
    assert not any("spec_info" in line for line in lines(plain))
    assert not metric(plain, "rollout/spec_accept_rate")


@pytest.mark.parametrize("how", DRAFTS)
def test_a_run_with_drafts_is_the_run_without(work, plain, tmp_path, how):
    drafted = run(work, tmp_path / "run", DRAFTS[how])
    check_same(drafted, plain)
    told = [line["spec_info"] for line in lines(drafted)]
    assert [info["completion_token_num"] for info in told] == [line["response_length"] for line in lines(drafted)]
    lengths, rates = metric(drafted, "rollout/spec_accept_length"), metric(drafted, "rollout/spec_accept_rate")
    assert len(lengths) == len(rates) == 4 and all(length >= 1 for length in lengths)
    if how != "where they pay":  # on a processor that may be nowhere
        assert sum(info["spec_accept_token_num"] for info in told) > 0
        assert max(lengths) > 1 and max(rates) > 0
    most = {"one": 1, "SGLang's words": 3}.get(how, 7)
    assert all(info["spec_draft_token_num"] <= most * info["spec_verify_ct"] for info in told)


@pytest.mark.parametrize("place", ["elsewhere", "two ranks"])
def test_engines_in_other_processes_draft_and_tell_of_it(wide, tmp_path, place):
    drafted = run(wide, tmp_path / "run", [*PLACES[place], *ALWAYS])
    check_same(drafted, run(wide, tmp_path / "plain", PLACES[place]))
    assert sum(line["spec_info"]["spec_accept_token_num"] for line in lines(drafted)) > 0


def test_engine_and_trainer_agree_to_the_bit_with_drafts_too(work, tmp_path):
    drafted = run(work, tmp_path / "run", ["--true-on-policy", *ALWAYS], rollouts=2)
    differences = metric(drafted, "train/train_rollout_logprob_abs_diff")
    assert differences and not any(differences)
    assert max(metric(drafted, "rollout/spec_accept_length")) > 1


def test_turns_of_a_users_function_add_up(work, tmp_path):
    (tmp_path / "turns.py").write_text(TURNS)
    function = ["--custom-generate-function-path", str(tmp_path / "turns.py")]
    drafted = run(work, tmp_path / "drafted", [*function, *ALWAYS], rollouts=2)
    plain = run(work, tmp_path / "plain", function, rollouts=2)
    assert samples(drafted) == samples(plain)
    assert weights(drafted) == weights(plain)
    told = [line["spec_info"] for line in lines(drafted)]
    assert [info["completion_token_num"] for info in told] == [3 * 12] * len(told)
    assert sum(info["spec_accept_token_num"] for info in told) > 0
    assert not any("spec_info" in line for line in lines(plain))


def test_what_changes_nothing_is_said(work, tmp_path):
    words = ["--sglang-speculative-algorithm", "STANDALONE", "--sglang-speculative-num-steps", "3", "--sglang-speculative-eagle-topk", "1"]
    done = run_slime([*train_command(work, tmp_path / "run", extra=words), "--dry-run"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--sglang-speculative-algorithm has no effect: draft models of this kind are not computed" in done.stdout + done.stderr
    done = run_slime([*train_command(work, tmp_path / "run", extra=["--rollout-draft-tokens", "3"]), "--dry-run"])
    assert "--rollout-draft-tokens has no effect" in done.stdout + done.stderr
    done = run_slime([*train_command(work, tmp_path / "run", extra=["--rollout-drafts", "suffix", "--rollout-draft-tokens", "16"]), "--dry-run"])
    assert done.returncode == 2 and "--rollout-draft-tokens 16: should be between 1 and 15" in done.stdout + done.stderr

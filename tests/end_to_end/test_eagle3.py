"""Runs whose engines draft with an EAGLE-3 model (`--rollout-drafts eagle3`): they are the run without drafts, to the bit."""

import json
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT, SLIME, metric, numbers_that_repeat, planned, run_slime, sizes_in, train_command, weights

# Near-greedy samples of this model repeat their last token, which is what its draft model guesses.
LONG = ["--rollout-temperature", "0.01"]
NOT_COMPARED = ("generation_seconds", "cached_tokens", "spec_info")
OF_DRAFTS = ("rollout/spec_accept_rate", "rollout/spec_accept_length", "rollout/prefix_cache_hit_rate", "rollout/avg_cached_tokens_per_sample")
PLACES = {"here": [], "elsewhere": ["--rollout-num-gpus", "1"]}


@pytest.fixture(scope="module")
def draft(work, tmp_path_factory):
    """A draft model for the model of `work`."""
    folder = tmp_path_factory.mktemp("eagle3") / "draft"
    subprocess.run([sys.executable, ROOT / "tools" / "tiny_eagle3.py", work / "model", folder], check=True)
    return folder


def words_of(draft):
    return ["--rollout-drafts", "eagle3", "--rollout-draft-model", str(draft)]


def command_of(work, run_dir, extra, rollouts=3):
    command = train_command(work, run_dir, rollouts=rollouts)
    command[command.index("--rollout-max-response-len") + 1] = "30"
    return [*command, *LONG, *extra]


def run(work, run_dir, extra, rollouts=3):
    done = run_slime(command_of(work, run_dir, extra, rollouts))
    assert done.returncode == 0, done.stdout + done.stderr
    return run_dir


def lines(run_dir):
    return [json.loads(line) for path in sorted((run_dir / "rollouts").glob("step_*.jsonl")) for line in path.open()]


def samples(run_dir):
    return [{name: value for name, value in line.items() if name not in NOT_COMPARED} for line in lines(run_dir)]


def check_same(drafted, plain):
    assert samples(drafted) == samples(plain)
    assert weights(drafted) == weights(plain)
    numbers = [
        {step: {name: value for name, value in row.items() if name not in OF_DRAFTS} for step, row in numbers_that_repeat(run_dir).items()}
        for run_dir in (drafted, plain)
    ]
    assert numbers[0] == numbers[1]


def num_kept(run_dir):
    return sum(line["spec_info"]["spec_accept_token_num"] for line in lines(run_dir))


@pytest.fixture(scope="module")
def plain(work, tmp_path_factory):
    """Runs without drafts, by the place of their engine; each is made once."""
    made = {}

    def of(place):
        if place not in made:
            made[place] = run(work, tmp_path_factory.mktemp("plain") / "run", PLACES[place])
        return made[place]

    return of


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["where they pay", "always", "texts too", "SGLang's words"])
def test_a_run_with_an_eagle3_model_is_the_run_without(work, draft, plain, tmp_path, how, place):
    if place == "elsewhere" and how != "always":
        pytest.skip("one form is enough there")
    sglang = ["--sglang-speculative-algorithm", "EAGLE3", "--sglang-speculative-draft-model-path", str(draft)]
    sglang += ["--sglang-speculative-num-steps", "3", "--sglang-speculative-eagle-topk", "1", "--sglang-speculative-num-draft-tokens", "4"]
    words = {
        "where they pay": words_of(draft),
        "always": [*words_of(draft), "--rollout-draft-always", "--check-weight-update-equal"],
        "texts too": ["--rollout-drafts", "suffix+eagle3", "--rollout-draft-model", str(draft), "--rollout-draft-always"],
        "SGLang's words": [*sglang, "--rollout-draft-always"],
    }[how]
    drafted = run(work, tmp_path / "run", [*PLACES[place], *words])
    check_same(drafted, plain(place))
    if how != "where they pay":  # on a processor that may be nowhere
        assert num_kept(drafted) > 0
        assert max(metric(drafted, "rollout/spec_accept_length")) > 1
    most = 3 if how == "SGLang's words" else 7
    assert all(line["spec_info"]["spec_draft_token_num"] <= most * line["spec_info"]["spec_verify_ct"] for line in lines(drafted))


def test_engine_and_trainer_agree_to_the_bit(work, draft, tmp_path):
    drafted = run(work, tmp_path / "run", ["--true-on-policy", *words_of(draft), "--rollout-draft-always"], rollouts=2)
    differences = metric(drafted, "train/train_rollout_logprob_abs_diff")
    assert differences and not any(differences)
    assert num_kept(drafted) > 0


def test_a_run_that_only_generates_drafts_too(work, draft, tmp_path):
    drafted = run(work, tmp_path / "drafted", ["--debug-rollout-only", *words_of(draft), "--rollout-draft-always"])
    assert samples(drafted) == samples(run(work, tmp_path / "plain", ["--debug-rollout-only"]))
    assert num_kept(drafted) > 0


@pytest.mark.parametrize("how", [[], ["--dry-run"]])
def test_a_directory_that_does_not_fit_is_refused_with_all_that_is_wrong(work, draft, tmp_path, how):
    wrong = tmp_path / "wrong"
    shutil.copytree(draft, wrong)
    config = json.loads((wrong / "config.json").read_text())
    (wrong / "config.json").write_text(json.dumps(config | {"vocab_size": 999, "num_hidden_layers": 2, "hidden_size": 48}))
    done = run_slime([*command_of(work, tmp_path / "run", words_of(wrong)), *how])
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    for part in ("vocab_size is 999", "num_hidden_layers must be 1", "hidden_size is 48", "tensor norm.weight is [64]"):
        assert part in said


def test_other_directories_are_refused_by_name(work, draft, tmp_path):
    first = tmp_path / "first"
    shutil.copytree(draft, first)
    config = json.loads((first / "config.json").read_text())
    (first / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForCausalLMEagle"]}))
    eagle = ["--sglang-speculative-algorithm", "EAGLE", "--sglang-speculative-draft-model-path"]
    for path, says in ((first, "an EAGLE draft model of version 1 or 2"), (work / "data", "has no config.json")):
        done = run_slime([*command_of(work, tmp_path / "run", [*eagle, str(path)]), "--dry-run"])
        assert done.returncode == 2, done.stdout + done.stderr
        assert says in done.stdout + done.stderr
    done = run_slime([*command_of(work, tmp_path / "run", ["--rollout-drafts", "eagle3"]), "--dry-run"])
    assert done.returncode == 2
    assert "--rollout-drafts eagle3: needs --rollout-draft-model DIR" in done.stdout + done.stderr
    # What is not on this machine may be on the run's.
    done = run_slime([*command_of(work, tmp_path / "run", words_of(tmp_path / "elsewhere")), "--dry-run"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--rollout-draft-model" in done.stdout + done.stderr
    # Nobody looks for the draft model of a run that does not generate.
    replay = ["--debug-train-only", "--load-debug-rollout-data", str(tmp_path / "none.jsonl"), "--rollout-drafts", "eagle3"]
    done = run_slime([*command_of(work, tmp_path / "run", replay), "--dry-run"])
    assert "--rollout-draft-model :" not in done.stdout + done.stderr


def test_a_plan_counts_the_draft_model_or_says_that_it_does_not(work, draft, tmp_path):
    plain, said = planned(work)
    assert plain["draft_bytes"] == 0 and said == ""
    numbers = sum(size for name, size in sizes_in(draft).items() if name not in ("d2t", "t2d"))
    sglang = ["--sglang-speculative-algorithm", "EAGLE3", "--sglang-speculative-draft-model-path", str(draft)]
    for words in (words_of(draft), sglang, [*words_of(draft), "--rollout-num-gpus", "1"]):
        counted, said = planned(work, *words)
        assert said == ""
        assert counted["draft_bytes"] == 2 * numbers
        assert counted["weights_bytes"] == plain["weights_bytes"] + 2 * numbers
        assert counted["tokens"] < plain["tokens"]
    away = tmp_path / "elsewhere"
    for words, says in (
        (words_of(away), f"slime plan: --rollout-draft-model {away}: is not counted, its files are not here"),
        ([*words_of(draft), "--device", "cuda"], "slime plan: --rollout-drafts eagle3 has no effect: no draft model on GPUs yet"),
        ([*words_of(draft), "--lora-rank", "4"], "has no effect: engines of adapters compute no draft model"),
    ):
        counted, said = planned(work, *words)
        assert counted["draft_bytes"] == 0
        assert says in said
    (tmp_path / "no_model").mkdir()
    command = [str(SLIME), "plan", "--hf-checkpoint", str(work / "model"), *words_of(tmp_path / "no_model")]
    done = run_slime(command)
    assert done.returncode == 2 and f"--rollout-draft-model: {tmp_path / 'no_model'}: has no config.json" in done.stderr

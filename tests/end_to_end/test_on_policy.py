"""Runs with --true-on-policy: engine and trainer agree to the bit in every step, whatever the engine did on the way."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT, SLIME, metric, run_slime, train_command, weights

MODELS = {"dense": [], "experts": ["--experts", "8"], "latent": ["--latent", "32"]}
# Sampled turns with a tool between them: later turns find the earlier ones in the prefix tree.
TURNS = """
from slime.utils.http_utils import post

async def generate(args, sample, sampling_params):
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    for turn in range(3):
        params = {**sampling_params, "max_new_tokens": 5, "ignore_eos": True}
        output = await post(url, {"input_ids": sample.tokens, "sampling_params": params, "return_logprob": True})
        drawn = output["meta_info"]["output_token_logprobs"]
        sample.append_response_tokens(args, tokens=[entry[1] for entry in drawn], log_probs=[entry[0] for entry in drawn],
                                      meta_info=output["meta_info"], text=output["text"])
        if turn < 2:
            sample.append_response_tokens(args, tokens=[11, 12, 13], trainable=False)
    sample.status = sample.Status.TRUNCATED
    return sample
"""


@pytest.fixture(scope="module")
def models(work, tmp_path_factory):
    """One folder like `work` for each kind of model."""
    folders = {}
    for name, more in {**MODELS, "delta": ["--delta"]}.items():
        folders[name] = tmp_path_factory.mktemp(name)
        made = [sys.executable, str(ROOT / "tools" / "tiny_model.py"), str(folders[name] / "model"), *more]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        (folders[name] / "data").symlink_to(work / "data")
    return folders


def command(folder, run_dir, *, dtype="float32", rollouts=3, extra=()):
    made = train_command(folder, run_dir, rollouts=rollouts, extra=["--true-on-policy", "--rollout-max-response-len", "40", *extra])
    if dtype == "bfloat16":
        made.remove("--fp32")
    made[made.index("--num-threads") + 1] = "2"
    return made


def agree(made, run_dir):
    done = run_slime(made)
    assert done.returncode == 0, done.stdout + done.stderr
    differences = metric(run_dir, "train/train_rollout_logprob_abs_diff")
    return differences, done.stdout + done.stderr


FORMS = {
    "plain": [],
    "chunked prompts": ["--sglang-chunked-prefill-size", "16"],
    "few at a time": ["--sglang-max-running-requests", "3"],
    "several steps": ["--global-batch-size", "4"],
    "no sharing": ["--no-prefix-sharing"],
    "warm": ["--rollout-temperature", "0.7"],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", MODELS)
def test_engine_and_trainer_agree_to_the_bit(models, tmp_path, model, dtype, form):
    differences, _ = agree(command(models[model], tmp_path / "run", dtype=dtype, extra=FORMS[form]), tmp_path / "run")
    assert differences and not any(differences[:1] if form == "several steps" else differences)
    if form == "several steps":
        assert not metric(tmp_path / "run", "perf/log_probs_time"), "old log-probs are the engine's"


VERIFIED = {
    "plain": [],
    "one": ["--rollout-verify-tokens", "1"],
    "chunked prompts": ["--sglang-chunked-prefill-size", "16"],
    "few at a time": ["--sglang-max-running-requests", "3"],
    "stop strings": ["--rollout-stop", "7", "1 "],
}
OF_TIME = ("generation_seconds", "cached_tokens", "spec_info")


def lines(run_dir):
    return [json.loads(line) for path in sorted((run_dir / "rollouts").glob("step_*.jsonl")) for line in path.open()]


@pytest.mark.parametrize("form", VERIFIED)
@pytest.mark.parametrize("model", MODELS)
def test_a_run_that_verifies_fast_tokens_is_the_run_without(models, tmp_path, model, form):
    extra = ["--rollout-verify-tokens", "8", *VERIFIED[form]]
    verified, plain = tmp_path / "verified", tmp_path / "plain"
    differences, _ = agree(command(models[model], verified, dtype="bfloat16", extra=extra), verified)
    without = [word for word in VERIFIED[form] if form != "one"]
    assert agree(command(models[model], plain, dtype="bfloat16", extra=without), plain)[0] == differences
    assert differences and not any(differences)
    told = lines(verified)
    kept = [[{name: value for name, value in line.items() if name not in OF_TIME} for line in lines(run_dir)] for run_dir in (verified, plain)]
    assert kept[0] == kept[1]
    assert weights(verified) == weights(plain)
    assert not any(metric(verified, "rollout/verify_redrawn")) and len(metric(verified, "rollout/verify_redrawn")) == 3
    assert not metric(plain, "rollout/verify_redrawn")
    assert sum(line["spec_info"].get("verify_compared_token_num", 0) for line in told) > 0
    assert [line["spec_info"]["completion_token_num"] for line in told] == [line["response_length"] for line in told]


def test_partial_rollouts_whose_tokens_are_verified_agree(models, tmp_path):
    partial = ["--partial-rollout", "--over-sampling-batch-size", "8", "--sglang-max-running-requests", "5", "--rollout-verify-tokens", "8"]
    agree(command(models["dense"], tmp_path / "run", rollouts=6, extra=partial), tmp_path / "run")
    drawn = lines(tmp_path / "run")
    assert any(len(sample["weight_versions"]) > 1 for sample in drawn), "no response went on behind an update"


def test_turns_whose_tokens_are_verified_agree(models, tmp_path):
    (tmp_path / "turns.py").write_text(TURNS)
    extra = ["--custom-generate-function-path", str(tmp_path / "turns.py"), "--rollout-verify-tokens", "3"]
    differences, _ = agree(command(models["dense"], tmp_path / "run", dtype="bfloat16", extra=extra), tmp_path / "run")
    assert differences and not any(differences)
    assert metric(tmp_path / "run", "rollout/verify_redrawn") == [0, 0, 0]


def test_without_the_flag_attention_adds_in_its_own_order(models, tmp_path):
    made = command(models["dense"], tmp_path / "run", dtype="bfloat16")
    made.remove("--true-on-policy")
    differences, _ = agree(made, tmp_path / "run")
    assert all(difference > 0 for difference in differences)


@pytest.mark.parametrize("model", MODELS)
def test_turns_behind_a_cached_prefix_agree(models, tmp_path, model):
    (tmp_path / "turns.py").write_text(TURNS)
    made = command(models[model], tmp_path / "run", dtype="bfloat16", extra=["--custom-generate-function-path", str(tmp_path / "turns.py")])
    differences, _ = agree(made, tmp_path / "run")
    assert differences and not any(differences)


def test_responses_of_several_versions_are_compared_where_they_are_new(models, tmp_path):
    dump = ["--save-debug-rollout-data", str(tmp_path / "{rollout_id}.jsonl")]
    partial = ["--partial-rollout", "--over-sampling-batch-size", "8", "--sglang-max-running-requests", "5", "--use-tis"]
    made = command(models["dense"], tmp_path / "run", rollouts=6, extra=[*partial, *dump])
    agree(made, tmp_path / "run")
    drawn = [json.loads(line) for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert any(len(sample["weight_versions"]) > 1 for sample in drawn), "no response went on behind an update"


def test_a_log_prob_that_differs_ends_the_run(models, tmp_path):
    pattern = str(tmp_path / "{rollout_id}.jsonl")
    agree(command(models["dense"], tmp_path / "run", extra=["--save-debug-rollout-data", pattern]), tmp_path / "run")
    replay = ["--load-debug-rollout-data", pattern]
    agree(command(models["dense"], tmp_path / "replayed", extra=replay), tmp_path / "replayed")
    assert weights(tmp_path / "replayed") == weights(tmp_path / "run")
    rows = (tmp_path / "1.jsonl").read_text().splitlines()
    sample = json.loads(rows[3])
    sample["rollout_log_probs"][2] += 1e-6
    rows[3] = json.dumps(sample)
    (tmp_path / "1.jsonl").write_text("\n".join(rows) + "\n")
    done = run_slime(command(models["dense"], tmp_path / "changed", extra=replay))
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2 and "--true-on-policy: 1 of " in said and "token 2 of the response of sample" in said, said


def test_delta_nets_whose_prompts_go_by_chunks_are_refused(models, tmp_path):
    done = run_slime(command(models["delta"], tmp_path / "run"))
    assert done.returncode == 2 and "--true-on-policy: the model has gated delta nets" in done.stdout + done.stderr


def test_what_a_gpu_cannot_add_in_the_trainers_order_is_refused(models, tmp_path):
    made = command(models["dense"], tmp_path / "run")
    made[made.index("--device") + 1] = "cuda"
    done = subprocess.run([str(SLIME), *made[1:]], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "a GPU has the trainer's order in bfloat16; --dtype is float32" in done.stdout + done.stderr

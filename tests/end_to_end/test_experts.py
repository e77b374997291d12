"""A model with experts through every command: it trains, stops and goes on, generates, and its files are what they were."""

import base64
import json
import struct
import subprocess
import sys

import pytest
from conftest import ROOT, SLIME, numbers_that_repeat, run_slime, train_command, weights


@pytest.fixture(scope="module", params=[[], ["--latent", "24"], ["--delta"]], ids=["qwen3_moe", "deepseek_v3", "qwen3_next"])
def experts(request, work, tmp_path_factory):
    """A folder like `work` whose model has four experts in each layer, beside plain attention, latent attention or a gated delta net."""
    folder = tmp_path_factory.mktemp("experts")
    maker = [sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model", "--experts", "4", *request.param]
    subprocess.run(maker, check=True, stdout=subprocess.DEVNULL)
    (folder / "data").symlink_to(work / "data")
    return folder


@pytest.fixture(scope="module")
def trained(experts):
    run_dir = experts / "trained"
    done = run_slime(train_command(experts, run_dir, rollouts=6))
    assert done.returncode == 0, done.stdout + done.stderr
    return run_dir


def header(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return {name: entry["shape"] for name, entry in json.loads(data[8 : 8 + length]).items() if name != "__metadata__"}


def test_a_checkpoint_has_the_tensors_of_the_model(experts, trained):
    saved = trained / "latest"
    assert header(saved / "model.safetensors") == header(experts / "model" / "model.safetensors")
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (experts / "model", saved))
    assert before == after
    assert weights(trained) != (experts / "model" / "model.safetensors").read_bytes()


def test_a_run_that_stopped_goes_on_as_if_it_had_not(experts, trained):
    run_dir = experts / "in-two-parts"
    for rollouts in (3, 6):
        done = run_slime(train_command(experts, run_dir, rollouts=rollouts))
        assert done.returncode == 0, done.stdout + done.stderr
    assert weights(run_dir) == weights(trained)
    assert numbers_that_repeat(run_dir) == numbers_that_repeat(trained)


def test_engine_and_trainer_agree(trained):
    """On-policy, so the log-probs of the engine are those of the trainer."""
    for step in numbers_that_repeat(trained).values():
        assert step["train/train_rollout_logprob_abs_diff"] < 1e-5


def test_two_ranks_learn_what_one_does(experts, trained):
    run_dir = experts / "two-ranks"
    extra = ["--actor-num-gpus-per-node", "2"]
    done = run_slime(train_command(experts, run_dir, rollouts=1, extra=extra))
    assert done.returncode == 0, done.stdout + done.stderr
    one, two = (numbers_that_repeat(folder)[0]["train/loss"] for folder in (trained, run_dir))
    assert abs(one - two) < 1e-6


def test_it_generates(experts, trained):
    lines = "".join(json.dumps({"text": f"{i}+{i}=", "sampling_params": {"max_new_tokens": 5}}) + "\n" for i in range(8))
    command = [str(SLIME), "generate", "--model", str(trained / "latest"), "--dtype", "float32", "--device", "cpu"]
    done = run_slime(command, input=lines)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 8
    assert all(1 <= answer["meta_info"]["completion_tokens"] <= 5 for answer in answers)


def test_a_request_is_told_whom_its_tokens_visited(experts, trained):
    shape = json.loads((experts / "model" / "config.json").read_text())
    width = shape["num_hidden_layers"] * shape["num_experts_per_tok"]
    whole = {"ids": [49, 43, 50, 61], "sampling_params": {"max_new_tokens": 5, "temperature": 0, "ignore_eos": True}}
    whole |= {"return_routed_experts": True}
    lines = "".join(json.dumps(line) + "\n" for line in (whole, whole | {"routed_experts_start_len": 3}))
    command = [str(SLIME), "generate", "--model", str(trained / "latest"), "--dtype", "float32", "--device", "cpu"]
    done = run_slime(command, input=lines)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads(line)["meta_info"] for line in done.stdout.splitlines())
    choices = [struct.unpack(f"<{rows * width}i", base64.b64decode(meta["routed_experts"])) for meta, rows in ((first, 8), (second, 5))]
    assert choices[0][3 * width :] == choices[1]
    assert set(choices[0]) <= set(range(4)) and len(set(choices[0])) > 1
    assert second["routed_experts_start_len"] == 3 and "routed_experts_start_len" not in first


def test_inspect_tells_of_the_experts(experts):
    done = run_slime([str(SLIME), "inspect", str(experts / "model")])
    assert done.returncode == 0, done.stderr
    assert "2 of 4 experts 96" in done.stdout
    assert "problems    none" in done.stdout


REPLAY = ["--use-rollout-routing-replay"]
PARTIAL = [*REPLAY, "--partial-rollout", "--over-sampling-batch-size", "8"]


@pytest.fixture(scope="module")
def replayed(experts):
    run_dir = experts / "replayed"
    done = run_slime(train_command(experts, run_dir, rollouts=2, extra=REPLAY))
    assert done.returncode == 0, done.stdout + done.stderr
    return run_dir


def check_choices(experts, run_dir):
    """Each row of each sample has its numbers, and there are several experts among them."""
    shape = json.loads((experts / "model" / "config.json").read_text())
    width = shape["num_hidden_layers"] * shape["num_experts_per_tok"]
    for path in (run_dir / "rollouts").glob("step_*.jsonl"):
        for line in path.open():
            sample = json.loads(line)
            numbers = base64.b64decode(sample["rollout_routed_experts"])
            choices = struct.unpack(f"<{len(numbers) // 2}h", numbers)
            assert len(choices) == (len(sample["tokens"]) - 1) * width
            assert {0, 1} < set(choices) <= {0, 1, 2, 3}


def test_the_engines_choices_travel_with_the_samples(experts, replayed):
    check_choices(experts, replayed)
    for step in numbers_that_repeat(replayed).values():
        assert step["train/train_rollout_logprob_abs_diff"] < 1e-5
        assert 1 <= step["train/moe_load_max_mean"] <= step["train/moe_load_max"] <= 4


def test_responses_drawn_in_parts_have_the_choices_of_all_parts(experts):
    run_dir = experts / "replayed-parts"
    for rollouts in (2, 4):
        done = run_slime(train_command(experts, run_dir, rollouts=rollouts, extra=PARTIAL))
        assert done.returncode == 0, done.stdout + done.stderr
    check_choices(experts, run_dir)


@pytest.mark.parametrize(
    "elsewhere",
    [["--rollout-num-gpus", "1"], ["--rollout-num-gpus", "2", "--rollout-num-gpus-per-engine", "2"], ["--actor-num-gpus-per-node", "2"]],
    ids=["engine", "engine_of_two", "ranks"],
)
def test_replayed_choices_reach_other_processes(experts, replayed, elsewhere):
    shape = json.loads((experts / "model" / "config.json").read_text())
    if "--rollout-num-gpus-per-engine" in elsewhere:
        if shape["num_key_value_heads"] % 2:
            pytest.skip("two ranks cannot share one key-value head")
        elsewhere = [*elsewhere, "--check-weight-update-equal"]
    run_dir = experts / f"replayed{''.join(elsewhere)}"
    done = run_slime(train_command(experts, run_dir, rollouts=2, extra=[*REPLAY, *elsewhere]))
    assert done.returncode == 0, done.stdout + done.stderr
    check_choices(experts, run_dir)
    one = numbers_that_repeat(replayed)
    for step, numbers in numbers_that_repeat(run_dir).items():
        assert numbers["train/train_rollout_logprob_abs_diff"] < 1e-5
        assert abs(numbers["train/loss"] - one[step]["train/loss"]) < 1e-5


def test_choices_of_the_old_pass_and_balanced_experts(experts):
    run_dir = experts / "balanced"
    flags = ["--use-routing-replay", "--moe-aux-loss-coeff", "0.5", "--moe-router-load-balancing-type", "seq_aux_loss"]
    flags += ["--moe-z-loss-coeff", "0.001", "--moe-router-enable-expert-bias", "--moe-router-bias-update-rate", "0.125"]
    has_biases = "deepseek" in (experts / "model" / "config.json").read_text()
    extra = [*(flags if has_biases else flags[:-3]), "--rollout-num-gpus", "1"]
    done = run_slime(train_command(experts, run_dir, rollouts=3, extra=extra))  # an odd number of steps up or down
    assert done.returncode == 0, done.stdout + done.stderr
    for step in numbers_that_repeat(run_dir).values():
        assert step["train/load_balancing_loss"] >= 0.4
        assert step["train/z_loss"] > 0
        # The engine has the biases of the trainer, or it would visit others.
        assert step["train/train_rollout_logprob_abs_diff"] < 1e-5
    if not has_biases:
        return
    data = (run_dir / "latest" / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name.endswith("e_score_correction_bias"):
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            biases = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
            assert any(biases) and all(bias % 0.125 == 0 for bias in biases)


def test_replay_needs_experts(work):
    done = run_slime(train_command(work, work / "no-experts", rollouts=1, extra=["--use-rollout-routing-replay"]))
    assert done.returncode != 0
    assert "--use-rollout-routing-replay: the model has no experts" in done.stderr

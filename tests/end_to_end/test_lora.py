"""Low-rank adapters: trained, sampled with, saved as PEFT does, gone on with after kill -9, refused by name."""

import json
import signal
import struct
import subprocess
import sys
import time

import pytest
from conftest import ROOT, SLIME, metric, numbers_that_repeat, run_slime, train_command

ADAPTER = ["--lora-rank", "4", "--lora-alpha", "8"]


def tensors(path):
    """Names and shapes of a safetensors file, and its bytes behind the header."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return {name: entry["shape"] for name, entry in header.items()}, data[8 + length :]


def adapter_bytes(run_dir):
    return (run_dir / "latest" / "adapter_model.safetensors").read_bytes()


def logprobs(model, ids, *extra):
    done = subprocess.run([str(SLIME), "logprobs", "--model", str(model), *extra], input=json.dumps({"ids": ids}) + "\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["logprobs"]


@pytest.fixture(scope="module")
def trained(work):
    run_dir = work / "adapter"
    done = run_slime(train_command(work, run_dir, rollouts=4, extra=[*ADAPTER, "--lr", "5e-2", "--kl-loss-coef", "0.1", "--use-kl-loss"]))
    assert done.returncode == 0, done.stdout + done.stderr
    return run_dir


def test_engines_sample_with_the_adapter_that_is_trained(work, trained):
    steps = numbers_that_repeat(trained)
    assert len(steps) == 4
    for step in steps.values():
        assert step["train/train_rollout_logprob_abs_diff"] < 1e-5  # of the engine's log-probs and the trainer's
    assert metric(trained, "train/kl_loss")[0] == pytest.approx(0, abs=1e-7)  # the reference is the model without it
    assert metric(trained, "train/kl_loss")[-1] > 1e-4
    ids = [40, 41, 42, 43, 44, 45]
    base, other = logprobs(work / "model", ids), logprobs(work / "model", ids, "--adapter", str(trained / "latest"))
    assert max(abs(a - b) for a, b in zip(base, other)) > 1e-2


@pytest.mark.parametrize("form, extra", [("train", ["--rollout-num-gpus", "2"]), ("train-async", []), ("train-async", ["--rollout-num-gpus", "1"])])
def test_engines_of_every_schedule_get_the_adapter(work, tmp_path, form, extra):
    command = train_command(work, tmp_path / "run", rollouts=3, extra=[*ADAPTER, "--lr", "5e-2", "--check-weight-update-equal", *extra])
    command[1] = form
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    if form == "train":
        assert max(metric(tmp_path / "run", "train/train_rollout_logprob_abs_diff")) < 1e-5


@pytest.fixture(scope="module")
def two_heads(work, tmp_path_factory):
    """The same data, with a model of two key-value heads."""
    folder = tmp_path_factory.mktemp("two_heads")
    maker = [sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model", "--hidden", "128"]
    subprocess.run(maker, check=True, stdout=subprocess.DEVNULL)
    (folder / "data").symlink_to(work / "data")
    return folder


TWO_RANKS = ["--rollout-num-gpus", "2", "--rollout-num-gpus-per-engine", "2"]
OVER_TRAINERS = ["--actor-num-gpus-per-node", "2", "--colocate", *TWO_RANKS]


@pytest.mark.parametrize(
    "name, extra",
    [
        ("engine_process", TWO_RANKS),
        ("over_data_parallel_ranks", OVER_TRAINERS),
        ("over_tensor_parallel_ranks", [*OVER_TRAINERS, "--tensor-model-parallel-size", "2"]),
    ],
)
def test_engines_of_two_ranks_sample_with_the_adapter_that_is_trained(two_heads, name, extra):
    """A rate so large that the model without its adapter, or one of a version before, would be far away."""
    run_dir = two_heads / name
    done = run_slime(train_command(two_heads, run_dir, rollouts=4, extra=[*ADAPTER, "--lr", "5e-2", "--check-weight-update-equal", *extra]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("tensors are the same in trainer and engines") == 2
    steps = numbers_that_repeat(run_dir)
    assert len(steps) == 4
    for step in steps.values():
        assert step["train/train_rollout_logprob_abs_diff"] < 1e-4
    ids = [40, 41, 42, 43, 44, 45]
    base, other = logprobs(two_heads / "model", ids), logprobs(two_heads / "model", ids, "--adapter", str(run_dir / "latest"))
    assert max(abs(a - b) for a, b in zip(base, other)) > 1e-2


def test_the_old_actor_is_an_adapter_that_goes_on_after_a_restart(work, tmp_path):
    extra = [*ADAPTER, "--lr", "5e-2", "--keep-old-actor"]
    for run_dir, parts in ((tmp_path / "whole", [4]), (tmp_path / "parts", [2, 4])):
        for rollouts in parts:
            done = run_slime(train_command(work, run_dir, rollouts=rollouts, extra=extra))
            assert done.returncode == 0, done.stdout + done.stderr
    assert adapter_bytes(tmp_path / "whole") == adapter_bytes(tmp_path / "parts")
    assert max(abs(kl) for kl in metric(tmp_path / "whole", "train/ppo_kl")[1:]) > 1e-4  # of a version before
    old, _ = tensors(tmp_path / "whole" / "latest" / "optimizer" / "old_actor.safetensors")
    assert old == tensors(tmp_path / "whole" / "latest" / "adapter_model.safetensors")[0]


def test_files_are_those_of_peft(trained):
    config = json.loads((trained / "latest" / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA" and config["r"] == 4 and config["lora_alpha"] == 8
    shapes, _ = tensors(trained / "latest" / "adapter_model.safetensors")
    ends = {name.split(".")[-3] for name in shapes}
    assert ends == set(config["target_modules"]) == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert all(name.startswith("base_model.model.model.layers.") for name in shapes)
    assert not (trained / "latest" / "model.safetensors").exists()
    moments, _ = tensors(trained / "latest" / "optimizer" / "exp_avg.safetensors")
    assert set(moments) == set(shapes)


@pytest.mark.parametrize("dropout", ["0", "0.5"])
def test_a_killed_run_goes_on_bit_for_bit(work, tmp_path, dropout):
    extra = [*ADAPTER, "--lr", "1e-2", "--lora-dropout", dropout]
    straight, run_dir = tmp_path / "straight", tmp_path / "run"
    assert run_slime(train_command(work, straight, rollouts=5, extra=extra)).returncode == 0
    process = subprocess.Popen(train_command(work, run_dir, rollouts=5, extra=extra), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not (run_dir / "latest" / "run.json").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = run_slime(train_command(work, run_dir, rollouts=5, extra=extra))
    assert done.returncode == 0, done.stdout + done.stderr
    assert adapter_bytes(run_dir) == adapter_bytes(straight)


def test_training_begins_with_an_adapter_of_others(work, trained, tmp_path):
    run_dir = tmp_path / "run"
    done = run_slime(train_command(work, run_dir, rollouts=1, extra=["--lora-adapter-path", str(trained / "latest"), "--lr", "0"]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert tensors(run_dir / "latest" / "adapter_model.safetensors")[1] == tensors(trained / "latest" / "adapter_model.safetensors")[1]


def test_ranks_train_what_one_rank_trains(work, tmp_path):
    run_dir = tmp_path / "ranks"
    extra = [*ADAPTER, "--actor-num-gpus-per-node", "2", "--pipeline-model-parallel-size", "2"]
    done = run_slime(train_command(work, run_dir, rollouts=2, extra=extra))
    assert done.returncode == 0, done.stdout + done.stderr
    for step in numbers_that_repeat(run_dir).values():
        assert step["train/train_rollout_logprob_abs_diff"] < 1e-5


@pytest.mark.parametrize("rank, says", [(4, "holds what is no finite floating-point number"), (0, "has 0 ranks")])
def test_numbers_that_cannot_be_an_adapters_are_refused(work, tmp_path, rank, says):
    """Products with rank 0 ended a server."""
    header, body = {}, b""
    for letter, shape in (("A", [rank, 192]), ("B", [64, rank])):
        size = 4 * shape[0] * shape[1]
        name = f"base_model.model.model.layers.0.mlp.down_proj.lora_{letter}.weight"
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + size]}
        body += struct.pack("<f", float("nan")) * (size // 4)
    text = json.dumps(header).encode()
    (tmp_path / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["down_proj"]}))
    done = subprocess.run([str(SLIME), "logprobs", "--model", str(work / "model"), "--adapter", str(tmp_path)], input='{"ids": [1, 2]}\n', capture_output=True, text=True)
    assert done.returncode == 2 and says in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize(
    "extra, says",
    [
        (["--target-modules", "q_proj,query"], "no module of the model is"),
        (["--advantage-estimator", "ppo"], "--lora-rank: not with --advantage-estimator ppo"),
        (["--only-train-params-name-list", "norm"], "--target-modules says what is trained"),
        (["--lora-dropout", "0.1", "--recompute-granularity", "full"], "would drop other numbers"),
        (["--lora-rank-pattern", "q_proj"], "EXPRESSION=NUMBER"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(work, tmp_path, extra, says):
    done = run_slime(train_command(work, tmp_path / "run", rollouts=1, extra=[*ADAPTER, *extra]))
    assert done.returncode == 2 and says in done.stdout + done.stderr, done.stdout + done.stderr


def test_dropout_of_experts_is_refused(work, tmp_path):
    maker = [sys.executable, ROOT / "tools" / "tiny_model.py", tmp_path / "model", "--experts", "4"]
    subprocess.run(maker, check=True, stdout=subprocess.DEVNULL)
    command = train_command(work, tmp_path / "run", rollouts=1, extra=[*ADAPTER, "--lora-dropout", "0.1"])
    command[command.index("--hf-checkpoint") + 1] = str(tmp_path / "model")
    done = run_slime(command)
    assert done.returncode == 2 and "not with adapters of experts (model.layers.0.mlp.experts" in done.stdout + done.stderr, done.stdout + done.stderr


def test_expanded_latents_of_several_adapters_on_a_gpu_are_refused_before_the_run(work, tmp_path):
    maker = [sys.executable, ROOT / "tools" / "tiny_model.py", tmp_path / "model", "--latent", "32"]
    subprocess.run(maker, check=True, stdout=subprocess.DEVNULL)
    command = train_command(work, tmp_path / "run", rollouts=1, extra=[*ADAPTER, "--bf16", "--device", "cuda", "--dry-run", "--adapter", "one=--lr 1e-3"])
    command[command.index("--hf-checkpoint") + 1] = str(tmp_path / "model")
    command.remove("--fp32")
    done = run_slime(command)
    said = done.stdout + done.stderr
    assert done.returncode == 2 and "in a batch on a GPU yet, such as model.layers.0.self_attn.kv_b_proj" in said, said


def test_a_rate_for_all_weights_is_told(work, tmp_path):
    done = run_slime(train_command(work, tmp_path / "run", rollouts=1, extra=[*ADAPTER, "--lr", "1e-6"]))
    assert done.returncode == 0 and "adapters learn at about ten times that" in done.stdout + done.stderr, done.stdout + done.stderr


def test_flags_that_mean_another_adapter_are_refused_by_a_checkpoint(work, trained):
    extra = ["--lora-rank", "8", "--lora-alpha", "8", "--lr", "5e-2", "--kl-loss-coef", "0.1", "--use-kl-loss"]
    done = run_slime(train_command(work, trained, rollouts=5, extra=extra))
    assert done.returncode == 2 and "has rank 4, the flags say 8" in done.stdout + done.stderr, done.stdout + done.stderr


def test_checkpoints_of_adapters_and_of_weights_are_told_apart(work, trained, reference, tmp_path):
    done = run_slime(train_command(work, tmp_path / "a", rollouts=30, extra=["--load", str(trained / "checkpoints")]))
    assert done.returncode == 2 and "holds an adapter" in done.stdout + done.stderr, done.stdout + done.stderr
    done = run_slime(train_command(work, tmp_path / "b", rollouts=30, extra=[*ADAPTER, "--load", str(reference / "checkpoints")]))
    assert done.returncode == 2 and "holds all weights" in done.stdout + done.stderr, done.stdout + done.stderr


def test_a_merged_model_is_the_model_with_its_adapter(work, trained, tmp_path):
    done = run_slime([str(SLIME), "export", str(trained), str(tmp_path / "merged"), "--merge", "--dtype", "fp32"])
    assert done.returncode == 0, done.stdout + done.stderr
    ids = [40, 41, 42, 43, 44, 45]
    apart = logprobs(work / "model", ids, "--adapter", str(trained / "latest"), "--dtype", "float32")
    assert logprobs(tmp_path / "merged", ids, "--dtype", "float32") == pytest.approx(apart, abs=1e-4)
    done = run_slime([str(SLIME), "export", str(trained), str(tmp_path / "other")])
    assert done.returncode == 2 and "--merge merges it into its model" in done.stderr, done.stdout + done.stderr


GOLDEN = ["deepseek_v3/mla", "deepseek_v3/experts_each", "deepseek_v3/all_linear", "gemma3_text/all_linear", "gpt_oss/experts_fused", "llama/tied_head"]
GOLDEN += ["phi3/head_saved", "qwen2/bias_kept", "qwen3/patterns", "qwen3_moe/experts_fused", "qwen3_moe/head"]


@pytest.mark.parametrize("case", GOLDEN)
def test_engines_draw_what_peft_draws(case):
    """Paged attention, absorbed latent attention, fused experts: the tokens of transformers with this adapter."""
    fixtures = ROOT / "tests" / "fixtures"
    golden = json.loads((fixtures / "lora" / case / "golden.json").read_text())["greedy"]
    line = {"ids": golden["prompt"], "return_logprob": True, "sampling_params": {"max_new_tokens": 24, "temperature": 0, "ignore_eos": True}}
    command = [str(SLIME), "generate", "--model", str(fixtures / "models" / case.split("/")[0]), "--adapter", str(fixtures / "lora" / case)]
    command += ["--skip-tokenizer-init", "--dtype", "float32", "--device", "cpu"]
    done = subprocess.run(command, input=json.dumps(line) + "\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    drawn = json.loads(done.stdout)["meta_info"]["output_token_logprobs"]
    assert [token for _, token, *_ in drawn] == golden["tokens"]
    assert [logprob for logprob, *_ in drawn] == pytest.approx(golden["logprobs"], abs=2e-4)

"""`slime train --device cuda` as a user runs it; skipped where there is no GPU."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, run_slime, sft_command, train_command
from visible_gpus import num_gpus

pytestmark = pytest.mark.skipif(num_gpus() == 0, reason="no NVIDIA GPU")
two_gpus = pytest.mark.skipif(num_gpus() < 2, reason="needs two GPUs")

SMALL = ["--rollout-batch-size", "16", "--global-batch-size", "16", "--use-dynamic-batch-size", "--max-tokens-per-gpu", "1024"]


def finished(command):
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def metric(run_dir, name):
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [row[name] for row in rows if name in row]


def close(left, right, bound):
    assert len(left) == len(right) > 0
    assert all(abs(a - b) <= bound * max(1, abs(b)) for a, b in zip(left, right, strict=True)), (left, right)


def pair_command(work, run_dir, extra):
    data = work / "pairs.jsonl"
    rows = [{"prompt": f"{n}+{n}=", "chosen": str(2 * n), "rejected": str(2 * n + 1)} for n in range(10, 42)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = train_command(work, run_dir, rollouts=8, extra=["--loss-type", "dpo_loss", *extra])
    command[command.index("--prompt-data") + 1] = str(data)
    command[command.index("--global-batch-size") + 1] = "4"
    at = command.index("--label-key")
    del command[at : at + 2]
    return command


def test_supervised_training_has_the_losses_of_the_cpu(work):
    data, losses = work / "data" / "sft.jsonl", {}
    for device in ("cpu", "cuda"):
        run_dir = work / f"sft-{device}"
        finished(sft_command(work, run_dir, data, rollouts=10, extra=[*SMALL, "--device", device]))
        losses[device] = metric(run_dir, "train/loss")
    close(losses["cuda"], losses["cpu"], 2e-4)
    assert losses["cuda"][-1] < losses["cuda"][0] - 0.5


def test_preferences_have_the_losses_of_the_cpu(work):
    losses = {}
    for device in ("cpu", "cuda"):
        run_dir = work / f"dpo-{device}"
        finished(pair_command(work, run_dir, ["--device", device]))
        losses[device] = metric(run_dir, "train/loss")
    assert abs(losses["cuda"][0] - 0.6931) < 1e-3
    close(losses["cuda"], losses["cpu"], 1e-3)


def test_a_run_resumes_where_it_was(work):
    data = work / "data" / "sft.jsonl"
    for run_dir, parts in ((work / "sft-whole", [6]), (work / "sft-parts", [3, 6])):
        for rollouts in parts:
            text = finished(sft_command(work, run_dir, data, rollouts=rollouts, extra=[*SMALL, "--device", "cuda"]))
    assert "continuing after rollout 2" in text
    close(metric(work / "sft-parts", "train/loss"), metric(work / "sft-whole", "train/loss"), 1e-5)


@pytest.mark.parametrize("dtype", ["--fp32", "--bf16"])
def test_engine_and_trainer_agree_on_what_was_drawn(work, dtype):
    run_dir = work / f"grpo{dtype}"
    command = train_command(work, run_dir, rollouts=3, extra=["--device", "cuda"])
    command[command.index("--fp32")] = dtype
    text = finished(command)
    assert re.search("memory of the GPU, [GM]iB", text)
    assert re.search(r"generate [\d.]+ at [\d,]+ tok/s, train [\d.]+ at [\d,]+ tok/s.*GiB, peak", text), text
    differences = metric(run_dir, "train/train_rollout_logprob_abs_diff")
    assert len(differences) == 3
    assert max(differences) < (1e-4 if dtype == "--fp32" else 1e-2)


def test_an_engine_has_experts_in_codes_of_what_is_trained(work, tmp_path):
    model = [sys.executable, ROOT / "tools" / "tiny_model.py", tmp_path / "model", "--experts", "4"]
    subprocess.run(model, check=True, stdout=subprocess.DEVNULL)
    (tmp_path / "data").symlink_to(work / "data")
    run_dir = tmp_path / "codes"
    command = train_command(tmp_path, run_dir, rollouts=3, extra=["--device", "cuda", "--rollout-precision", "fp8", "--use-tis"])
    command[command.index("--fp32")] = "--bf16"
    finished(command)
    mismatch = metric(run_dir, "train/train_rollout_k3")
    assert len(mismatch) == 3
    assert all(1e-7 < k3 < 1e-2 for k3 in mismatch), mismatch


LORA = ["--lora-rank", "8", "--lr", "2e-3"]


def test_adapters_have_the_losses_of_the_cpu(work):
    data, losses = work / "data" / "sft.jsonl", {}
    for device in ("cpu", "cuda"):
        run_dir = work / f"lora-{device}"
        finished(sft_command(work, run_dir, data, rollouts=10, extra=[*SMALL, *LORA, "--device", device]))
        losses[device] = metric(run_dir, "train/loss")
    close(losses["cuda"], losses["cpu"], 2e-3)
    assert losses["cuda"][-1] < losses["cuda"][0]


@pytest.mark.parametrize("dtype", ["--fp32", "--bf16"])
def test_the_engine_samples_with_the_adapter_that_was_trained(work, dtype):
    """A rate so large that the model without its adapter would be far away after one step."""
    run_dir = work / f"lora-grpo{dtype}"
    command = train_command(work, run_dir, rollouts=4, extra=["--device", "cuda", "--lora-rank", "8", "--lr", "5e-2"])
    command[command.index("--fp32")] = dtype
    finished(command)
    differences = metric(run_dir, "train/train_rollout_logprob_abs_diff")
    assert len(differences) == 4
    assert max(differences) < (1e-3 if dtype == "--fp32" else 2e-2), differences


SHAPES = {"experts": ["--experts", "4"], "latents": ["--latent", "32"], "delta": ["--delta"]}


@pytest.fixture(scope="module", params=SHAPES)
def other_layers(work, tmp_path_factory, request):
    """The same data, with a model of other layers."""
    folder = tmp_path_factory.mktemp(request.param)
    subprocess.run([sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model", *SHAPES[request.param]], check=True, stdout=subprocess.DEVNULL)
    (folder / "data").symlink_to(work / "data")
    return folder


def test_adapters_of_other_layers_have_the_losses_of_the_cpu(other_layers):
    losses = {}
    for device in ("cpu", "cuda"):
        run_dir = other_layers / f"lora-{device}"
        data = other_layers / "data" / "sft.jsonl"
        finished(sft_command(other_layers, run_dir, data, rollouts=8, extra=[*SMALL, *LORA, "--device", device]))
        losses[device] = metric(run_dir, "train/loss")
    close(losses["cuda"], losses["cpu"], 3e-3)
    assert losses["cuda"][-1] < losses["cuda"][0]


@pytest.mark.parametrize("dtype", ["--fp32", "--bf16"])
def test_the_engine_samples_with_the_adapters_of_other_layers(other_layers, dtype):
    run_dir = other_layers / f"lora-grpo{dtype}"
    command = train_command(other_layers, run_dir, rollouts=4, extra=["--device", "cuda", "--lora-rank", "8", "--lr", "2e-2"])
    command[command.index("--fp32")] = dtype
    finished(command)
    differences = metric(run_dir, "train/train_rollout_logprob_abs_diff")
    assert len(differences) == 4
    assert max(differences) < (1e-3 if dtype == "--fp32" else 5e-2), differences


def test_the_old_actor_of_an_adapter_has_the_numbers_of_the_version_before(work):
    run_dir = work / "lora-old-actor"
    finished(in_bfloat16(train_command(work, run_dir, rollouts=4, extra=["--device", "cuda", "--lora-rank", "8", "--lr", "5e-2", "--keep-old-actor"])))
    drifts = [abs(kl) for kl in metric(run_dir, "train/ppo_kl")]
    assert drifts[0] < 1e-3 < max(drifts[1:]), drifts


def beside_each_other(command, own):
    return [*command, *(word for name, flags in own.items() for word in ("--adapter", f"{name}={flags}"))]


def in_bfloat16(command):
    command[command.index("--fp32")] = "--bf16"
    return command


def test_adapters_over_one_base_have_the_losses_of_each_alone(work):
    own = {"small": "--lora-rank 4 --lr 5e-4", "large": "--lora-rank 8 --lr 4e-3"}
    data, both = work / "data" / "sft.jsonl", work / "lora-beside"
    extra = [*SMALL, "--device", "cuda"]
    finished(beside_each_other(in_bfloat16(sft_command(work, both, data, rollouts=8, extra=extra)), own))
    losses = {}
    for name, flags in own.items():
        run_dir = work / f"lora-alone-{name}"
        finished(in_bfloat16(sft_command(work, run_dir, data, rollouts=8, extra=[*extra, *flags.split()])))
        losses[name] = metric(both / name, "train/loss")
        close(losses[name], metric(run_dir, "train/loss"), 5e-3)
    assert losses["large"][-1] < losses["large"][0]
    assert abs(losses["small"][-1] - losses["large"][-1]) > 0.02


def test_one_engine_samples_with_what_each_of_several_runs_trains(work):
    """Rates so large that another version's adapter, or the other run's, would be far away."""
    own = {"one": "--lora-rank 8 --lr 5e-2", "two": "--lora-rank 4 --lr 3e-2 --num-rollout 3 --use-kl-loss --kl-loss-coef 0.1"}
    both = work / "lora-grpo-beside"
    extra = ["--device", "cuda", "--kv-cache-gb", "1", "--check-weight-update-equal"]
    text = finished(beside_each_other(in_bfloat16(train_command(work, both, rollouts=4, extra=extra)), own))
    for name, steps in (("one", 4), ("two", 3)):
        assert f"{name}: --check-weight-update-equal: " in text, text
        differences = metric(both / name, "train/train_rollout_logprob_abs_diff")
        assert len(differences) == steps and max(differences) < 2e-2, (name, differences)
    assert max(metric(both / "two", "train/kl_loss")) > 1e-3  # the base has no adapter
    again = finished(beside_each_other(in_bfloat16(train_command(work, both, rollouts=6, extra=extra)), own))
    assert "continuing after rollout 3" in again and len(metric(both / "one", "train/loss")) == 6


def test_a_profile_shows_phases_engine_steps_and_kernels(work):
    run_dir = work / "profiled"
    extra = ["--device", "cuda", "--profile", "--profile-step-start", "1", "--profile-step-end", "2"]
    assert "trace.json" in finished(train_command(work, run_dir, rollouts=3, extra=extra))
    events = json.loads((run_dir / "trace.json").read_text())["traceEvents"]
    ranges = {event["name"] for event in events if event.get("cat") == "user_annotation" and event.get("dur", 0) > 0}
    assert {"generate", "train", "publish", "record", "engine step", "forward and backward", "optimizer"} <= ranges, ranges
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert len(kernels) > 100
    assert sum(event["dur"] for event in kernels) > 0
    generate = next(e for e in events if e["name"] == "generate" and e.get("cat") == "user_annotation")
    steps = [e for e in events if e["name"] == "engine step" and e.get("cat") == "user_annotation"]
    assert len(steps) >= 6
    assert all(generate["ts"] <= e["ts"] and e["ts"] + e["dur"] <= generate["ts"] + generate["dur"] for e in steps)


# Takes what is free, and what becomes free, but for some gibibytes, until its standard input closes.
HOG = """
import select, sys, torch
piece, spare, kept, said = 2**28, int(float(sys.argv[1]) * 2**30), [], False
while not select.select([sys.stdin], [], [], 0.0005)[0]:
    while torch.cuda.mem_get_info()[0] > spare + piece:
        kept.append(torch.empty(piece, dtype=torch.uint8, device="cuda"))
    if not said:
        print("holding", flush=True)
    said = True
"""


def hold_all_but(gibibytes):
    hog = subprocess.Popen([sys.executable, "-c", HOG, str(gibibytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert hog.stdout.readline().strip() == "holding"
    return hog


def let_go(hog):
    hog.stdin.close()
    hog.wait(timeout=60)


def test_too_little_memory_is_noticed_before_the_run(work):
    hog = hold_all_but(1.2)
    try:
        done = run_slime(train_command(work, work / "crowded", extra=["--device", "cuda", "--kv-cache-gb", "8"]))
    finally:
        let_go(hog)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--kv-cache-gb 8" in done.stderr


def test_memory_that_runs_out_ends_the_run_with_its_checkpoint(work):
    """The cache gives its memory back while the weights are trained, and another process takes it."""
    run_dir = work / "starved-gpu"
    extra = ["--device", "cuda", "--kv-cache-gb", "8", "--offload-rollout"]
    log = work / "starved-gpu.log"
    with log.open("w") as out:
        run = subprocess.Popen(train_command(work, run_dir, rollouts=100000, extra=extra), stdout=out, stderr=out)
    while not (run_dir / "latest").exists():
        time.sleep(0.05)
        assert run.poll() is None, log.read_text()
    hog = hold_all_but(0.5)
    try:
        run.wait(timeout=120)
    finally:
        run.kill()
        let_go(hog)
    text = log.read_text()
    assert run.returncode == 2, text
    assert "the GPU's memory ran out" in text
    assert "keys and values" in text
    assert "--kv-cache-gb" in text
    assert "is complete; the same command goes on" in text
    # The step that was whole when memory ran out is saved on the way out.
    saved = max(int(n) for n in re.findall(r"(?:checkpoint of rollout|rollout step) (\d+)(?: is complete| was trained before)", text))
    again = finished(train_command(work, run_dir, rollouts=saved + 3, extra=["--device", "cuda"]))
    assert f"continuing after rollout {saved}" in again


LAYOUTS = {
    "dp": [],
    "tp": ["--tensor-model-parallel-size", "2", "--sequence-parallel"],
    "cp": ["--context-parallel-size", "2"],
    "pp": ["--pipeline-model-parallel-size", "2"],
}


@pytest.fixture(scope="module")
def wide(work, tmp_path_factory):
    """The same data, with a model of four layers and four heads, which two ranks can divide."""
    folder = tmp_path_factory.mktemp("wide")
    command = [sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model", "--hidden", "128", "--layers", "4"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (folder / "data").symlink_to(work / "data")
    return folder


@pytest.fixture(scope="module")
def rollouts_of_one_gpu(wide):
    run_dir, pattern = wide / "one_gpu", str(wide / "one_gpu_dump" / "{rollout_id}.jsonl")
    finished(train_command(wide, run_dir, rollouts=3, extra=["--device", "cuda", "--save-debug-rollout-data", pattern]))
    return pattern, run_dir


@two_gpus
@pytest.mark.parametrize("name", LAYOUTS)
def test_two_gpus_train_on_the_same_rollouts_as_one_does(wide, rollouts_of_one_gpu, name):
    pattern, one = rollouts_of_one_gpu
    run_dir = wide / f"two_gpus_{name}"
    extra = ["--device", "cuda", "--actor-num-gpus-per-node", "2", *LAYOUTS[name], "--load-debug-rollout-data", pattern]
    finished(train_command(wide, run_dir, rollouts=3, extra=extra))
    for number in ("train/loss", "train/grad_norm"):
        close(metric(run_dir, number), metric(one, number), 1e-3)


@two_gpus
@pytest.mark.parametrize("name", LAYOUTS)
def test_two_gpus_train_adapters_on_the_same_rollouts_as_one_does(wide, rollouts_of_one_gpu, name):
    pattern, _ = rollouts_of_one_gpu
    losses = {}
    for run, layout in (("one", []), (name, ["--actor-num-gpus-per-node", "2", *LAYOUTS[name]])):
        run_dir = wide / f"adapters_{name}_{run}"
        finished(train_command(wide, run_dir, rollouts=3, extra=["--device", "cuda", *LORA, *layout, "--load-debug-rollout-data", pattern]))
        losses[run] = {number: metric(run_dir, number) for number in ("train/loss", "train/grad_norm")}
    for number, expected in losses["one"].items():
        close(losses[name][number], expected, 1e-3)


@two_gpus
@pytest.mark.parametrize("name", ["dp", "tp"])
def test_two_gpus_train_the_adapter_with_which_the_generator_on_the_first_draws(wide, name):
    run_dir = wide / f"adapters_draw_{name}"
    extra = ["--device", "cuda", "--lora-rank", "8", "--lr", "5e-2", "--actor-num-gpus-per-node", "2", *LAYOUTS[name]]
    finished(train_command(wide, run_dir, rollouts=3, extra=extra))
    differences = metric(run_dir, "train/train_rollout_logprob_abs_diff")
    assert len(differences) == 3
    assert all(0 <= difference < 2e-3 for difference in differences)


@two_gpus
@pytest.mark.parametrize("name", ["dp", "tp"])
def test_an_engine_over_two_gpus_samples_with_the_adapter_that_they_train(wide, name):
    run_dir = wide / f"adapters_engine_{name}"
    extra = ["--device", "cuda", "--lora-rank", "8", "--lr", "5e-2", "--actor-num-gpus-per-node", "2", *LAYOUTS[name]]
    finished(train_command(wide, run_dir, rollouts=3, extra=[*extra, "--colocate", "--rollout-num-gpus-per-engine", "2"]))
    differences = metric(run_dir, "train/train_rollout_logprob_abs_diff")
    assert len(differences) == 3
    assert all(0 <= difference < 2e-3 for difference in differences)


@two_gpus
@pytest.mark.parametrize("name", ["dp", "tp"])
def test_two_gpus_train_what_the_generator_on_the_first_draws(wide, name):
    run_dir = wide / f"two_gpus_draw_{name}"
    finished(train_command(wide, run_dir, rollouts=3, extra=["--device", "cuda", "--actor-num-gpus-per-node", "2", *LAYOUTS[name]]))
    differences = metric(run_dir, "train/train_rollout_logprob_abs_diff")
    assert len(differences) == 3
    assert all(0 <= difference < 1e-3 for difference in differences)


@two_gpus
@pytest.mark.parametrize("name", ["dp", "tp"])
def test_a_rank_that_is_killed_on_its_gpu_is_started_again_with_its_engine(wide, name):
    """Rank 0 too is a process beside the one that was started, which has no memory on a GPU."""
    run_dir, steps = wide / f"two_gpus_killed_{name}", 30
    extra = ["--device", "cuda", "--actor-num-gpus-per-node", "2", *LAYOUTS[name], "--use-fault-tolerance"]
    command = train_command(wide, run_dir, rollouts=steps, extra=extra)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        while not (run_dir / "latest").exists():
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.02)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        users = subprocess.run(
            ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"], capture_output=True, text=True, check=False
        )
        assert str(process.pid) not in users.stdout.split()
        os.kill(int(children[0]), signal.SIGKILL)
        output, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, output
    assert f"trainer ranks start again, in epoch 1: rank 0 (process {children[0]}) was killed by signal 9" in output
    assert "memory of the GPU, " in output
    assert max(metric(run_dir, "train/train_rollout_logprob_abs_diff")) < 1e-3
    assert min(metric(run_dir, "perf/gpu_bytes_train")) > 0

"""`slime train` on parallel layouts: tensor, context and pipeline parallel ranks train as one does, and read each other's checkpoints."""

import array
import json
import re
import shutil
import struct
import subprocess
import sys

import golden_models
import pytest
from conftest import ROOT, numbers_that_repeat, run_slime, sft_command, train_command, weights


@pytest.fixture(scope="module")
def work(work, tmp_path_factory):
    """The same data, with a model of four layers, four heads and a vocabulary that two does not divide."""
    folder = tmp_path_factory.mktemp("layouts")
    command = [sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model", "--hidden", "128", "--layers", "4"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (folder / "data").symlink_to(work / "data")
    return folder


def layout(ranks, *, tp=1, cp=1, pp=1, extra=()):
    sizes = {"tensor-model": tp, "context": cp, "pipeline-model": pp}
    flags = ["--actor-num-gpus-per-node", str(ranks)]
    for name, size in sizes.items():
        flags += [f"--{name}-parallel-size", str(size)] if size > 1 else []
    return [*flags, *extra]


LAYOUTS = {
    "tp": layout(2, tp=2),
    "tp_sp_and_dp": layout(4, tp=2, extra=["--sequence-parallel"]),
    "cp": layout(2, cp=2),
    "cp_contiguous": layout(2, cp=2, extra=["--allgather-cp"]),
    "pp": layout(2, pp=2),
    "all": layout(8, tp=2, cp=2, pp=2, extra=["--sequence-parallel"]),
}


@pytest.fixture(scope="module")
def dump(work):
    """Rollouts of one rank, and the numbers of their training."""
    run_dir = work / "layout_reference"
    pattern = str(work / "layout_dump" / "{rollout_id}.jsonl")
    done = run_slime(train_command(work, run_dir, rollouts=3, extra=["--save-debug-rollout-data", pattern]))
    assert done.returncode == 0, done.stdout + done.stderr
    return pattern, numbers_that_repeat(run_dir)


def assert_same_training(got, expected):
    assert len(got) == len(expected)
    for step, numbers in expected.items():
        for name in [n for n in numbers if n.startswith("train/")] + ["rollout/advantages", "rollout/rewards"]:
            if name == "train/train_rollout_logprob_abs_diff":  # of roundings, which layouts have of their own
                assert got[step][name] < 1e-4, (step, name)
                continue
            assert got[step][name] == pytest.approx(numbers[name], rel=1e-3, abs=1e-5), (step, name)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_trains_on_the_same_rollouts_as_one_rank_does(work, dump, name):
    pattern, expected = dump
    run_dir = work / f"layout_{name}"
    done = run_slime(train_command(work, run_dir, rollouts=3, extra=LAYOUTS[name] + ["--load-debug-rollout-data", pattern]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert_same_training(numbers_that_repeat(run_dir), expected)


@pytest.mark.parametrize("name", ["tp", "pp"])
def test_the_engine_draws_with_the_weights_of_all_ranks(work, name):
    """What the engine says of the tokens it drew is what the ranks say of them: one has the whole model, the others slices of it."""
    run_dir = work / f"layout_draws_{name}"
    done = run_slime(train_command(work, run_dir, rollouts=4, extra=LAYOUTS[name]))
    assert done.returncode == 0, done.stdout + done.stderr
    steps = numbers_that_repeat(run_dir)
    assert len(steps) == 4
    for numbers in steps.values():
        assert 0 < numbers["train/train_rollout_logprob_abs_diff"] < 1e-4
    # The weights moved: those of the first step would be far off by now.
    assert steps[3]["train/grad_norm"] != steps[0]["train/grad_norm"]


@pytest.mark.parametrize(
    ("name", "per_engine"), [("tp", 2), ("tp_sp_and_dp", 2), ("dp", 2), ("pp", 2)], ids=lambda value: str(value)
)
def test_engines_of_two_ranks_are_over_the_ranks_that_train(work, name, per_engine):
    """One or two engines, each with slices on two ranks, whatever the ranks themselves hold; new weights come to all of them."""
    run_dir = work / f"layout_engine_groups_{name}"
    flags = LAYOUTS.get(name, layout(4))
    ranks = int(flags[1])
    extra = [*flags, "--colocate", "--rollout-num-gpus", str(ranks), "--rollout-num-gpus-per-engine", str(per_engine)]
    extra += ["--check-weight-update-equal"] + (["--offload-rollout"] if name == "dp" else [])
    done = run_slime(train_command(work, run_dir, rollouts=4, extra=extra))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("tensors are the same in trainer and engines") == 2
    steps = numbers_that_repeat(run_dir)
    assert len(steps) == 4
    for numbers in steps.values():
        assert 0 < numbers["train/train_rollout_logprob_abs_diff"] < 1e-4
    assert steps[3]["train/grad_norm"] != steps[0]["train/grad_norm"]
    for rank in range(ranks):
        log = (run_dir / "workers" / f"rank_{rank}.log").read_text()
        assert ("its engine is ready" if rank % per_engine == 0 else "it follows in an engine") in log


@pytest.mark.parametrize("name", ["tp_sp_and_dp", "pp"])
def test_ranks_with_parts_of_the_model_each_have_an_engine_of_the_whole(work, name):
    """All ranks draw, with the weights of all ranks, device to device; the checksums of engines and trainer are compared too."""
    run_dir = work / f"layout_engines_{name}"
    ranks = LAYOUTS[name][1]
    extra = [*LAYOUTS[name], "--colocate", "--rollout-num-gpus", ranks, "--check-weight-update-equal"]
    done = run_slime(train_command(work, run_dir, rollouts=4, extra=extra + (["--offload-rollout"] if name == "pp" else [])))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("tensors are the same in trainer and engines") == 2
    steps = numbers_that_repeat(run_dir)
    assert len(steps) == 4
    for numbers in steps.values():
        assert 0 < numbers["train/train_rollout_logprob_abs_diff"] < 1e-4
    assert steps[3]["train/grad_norm"] != steps[0]["train/grad_norm"]
    for rank in range(int(ranks)):
        log = (run_dir / "workers" / f"rank_{rank}.log").read_text()
        assert int(re.search(r"its engine drew for (\d+) requests", log)[1]) > 0


@pytest.mark.parametrize("mixer", [["--latent", "24"], ["--delta"]], ids=["latent", "delta"])
def test_the_engine_has_the_heads_of_all_ranks_of_other_mixers(work, mixer):
    folder = work / mixer[0].strip("-")
    maker = [sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model", "--hidden", "128", *mixer]
    subprocess.run(maker, check=True, stdout=subprocess.DEVNULL)
    (folder / "data").symlink_to(work / "data")
    done = run_slime(train_command(folder, folder / "run", rollouts=2, extra=LAYOUTS["tp"] + ["--sequence-parallel"]))
    assert done.returncode == 0, done.stdout + done.stderr
    for numbers in numbers_that_repeat(folder / "run").values():
        assert 0 < numbers["train/train_rollout_logprob_abs_diff"] < 1e-4


def test_a_checkpoint_of_a_layout_goes_on_with_another(work, dump):
    pattern, expected = dump
    first = work / "layout_first"
    replay = ["--load-debug-rollout-data", pattern]
    done = run_slime(train_command(work, first, rollouts=2, extra=LAYOUTS["tp_sp_and_dp"] + replay))
    assert done.returncode == 0, done.stdout + done.stderr
    for name, flags in {"one": [], "four": layout(4), "all": LAYOUTS["all"]}.items():
        run_dir = work / f"layout_then_{name}"
        subprocess.run(["cp", "-r", first, run_dir], check=True)
        done = run_slime(train_command(work, run_dir, rollouts=3, extra=flags + replay))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "continuing after rollout 1" in done.stdout + done.stderr
        assert_same_training({2: numbers_that_repeat(run_dir)[2]}, {2: expected[2]})


def test_rows_are_trained_without_an_engine(work):
    found = {}
    for name, flags in {"one": [], "tp": LAYOUTS["tp"], "pp": LAYOUTS["pp"]}.items():
        run_dir = work / f"layout_sft_{name}"
        batch = ["--rollout-batch-size", "8", "--global-batch-size", "8", "--use-dynamic-batch-size", "--max-tokens-per-gpu", "256"]
        done = run_slime(sft_command(work, run_dir, work / "data" / "sft.jsonl", rollouts=2, extra=batch + flags))
        assert done.returncode == 0, done.stdout + done.stderr
        found[name] = numbers_that_repeat(run_dir)
    for name in ("tp", "pp"):
        for step in (0, 1):
            for key in ("train/loss", "train/grad_norm"):
                assert found[name][step][key] == pytest.approx(found["one"][step][key], rel=1e-4), (name, step, key)


@pytest.fixture(scope="module")
def experts(work, tmp_path_factory):
    """The same data, with a model of four experts in each layer."""
    folder = tmp_path_factory.mktemp("expert_layouts")
    command = [sys.executable, ROOT / "tools" / "tiny_model.py", folder / "model", "--hidden", "128", "--experts", "4"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (folder / "data").symlink_to(work / "data")
    return folder


def numbers_of(run_dir):
    """The saved weights, tensor by tensor."""
    data = weights(run_dir)
    (length,) = struct.unpack("<Q", data[:8])
    places = {name: entry["data_offsets"] for name, entry in json.loads(data[8 : 8 + length]).items() if name != "__metadata__"}
    return {name: array.array("f", data[8 + length + begin : 8 + length + end]) for name, (begin, end) in places.items()}


def test_divided_experts_train_as_those_of_one_rank_do(experts):
    pattern = str(experts / "dump" / "{rollout_id}.jsonl")
    divided = layout(4, tp=2, extra=["--expert-model-parallel-size", "2", "--sequence-parallel"])
    runs = {
        "one": ["--save-debug-rollout-data", pattern],
        "divided": [*divided, "--load-debug-rollout-data", pattern],
        "drawn": divided,
    }
    for name, extra in runs.items():
        done = run_slime(train_command(experts, experts / name, rollouts=2, extra=extra))
        assert done.returncode == 0, done.stdout + done.stderr
    assert_same_training(numbers_that_repeat(experts / "divided"), numbers_that_repeat(experts / "one"))
    one, other = numbers_of(experts / "one"), numbers_of(experts / "divided")
    assert one.keys() == other.keys() and any(".experts.3." in name for name in one)
    for name, numbers in one.items():
        # Adam moves a number by at most the rate; sums in another order move it by little of that.
        off = sum(abs(a - b) for a, b in zip(numbers, other[name], strict=True)) / len(numbers)
        assert off < 2e-5, name
    # The engine has the experts of all ranks, or it would say other log-probs of what it drew.
    for numbers in numbers_that_repeat(experts / "drawn").values():
        assert 0 < numbers["train/train_rollout_logprob_abs_diff"] < 1e-4


def with_vocabulary(path, source, size):
    """A safetensors file whose embedding and head have at least so many rows: those that there are, again and again."""
    data = source.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, pieces, offset = json.loads(data[8 : 8 + length]), [], 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        piece = data[8 + length + begin : 8 + length + end]
        if name.endswith(("embed_tokens.weight", "lm_head.weight")) and entry["shape"][0] < size:
            row = len(piece) // entry["shape"][0]
            entry["shape"][0] = size
            piece = (piece * (size * row // len(piece) + 1))[: size * row]
        entry["data_offsets"] = [offset, offset + len(piece)]
        offset += len(piece)
        pieces.append(piece)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(pieces))


def needs_slices_of_its_own(tensors):
    """Several matrices in one tensor; norms over all heads of dense models stand for those of others."""
    is_dense = not golden_models.has_experts(tensors)
    return (
        golden_models.has_fused_projections(tensors)
        or golden_models.has_stacked_experts(tensors)
        or (is_dense and golden_models.has_norms_over_all_heads(tensors))
    )


EXPERTS_IN_SLICES = ["--expert-model-parallel-size", "2", "--expert-tensor-parallel-size", "2"]


@pytest.mark.parametrize(
    ("source", "extra", "rounding"),
    [
        pytest.param(
            model,
            EXPERTS_IN_SLICES if golden_models.has_experts(tensors) else [],
            5e-4 if golden_models.has_delta_nets(tensors) else 1e-4,
            id=model.name,
        )
        for model in golden_models.golden_models()
        if needs_slices_of_its_own(tensors := golden_models.shapes(model))
    ],
)
def test_ranks_have_pieces_of_tensors_that_are_several_matrices(work, tmp_path, source, extra, rounding):
    """Fused projections, experts of a layer in one tensor, norms over all heads: sliced in the trainer, and otherwise in engines of two ranks."""
    model = tmp_path / "model"
    shutil.copytree(work / "model", model)
    (tmp_path / "data").symlink_to(work / "data")
    told = json.loads((source / "config.json").read_text())
    text = told.get("text_config", told)
    text["vocab_size"] = max(text["vocab_size"], 320)
    text["eos_token_id"] = json.loads((work / "model" / "config.json").read_text())["eos_token_id"]
    (model / "config.json").write_text(json.dumps(told))
    with_vocabulary(model / "model.safetensors", source / "model.safetensors", text["vocab_size"])
    pattern = str(tmp_path / "dump" / "{rollout_id}.jsonl")
    flags = [*layout(4, tp=2, extra=["--sequence-parallel"]), *extra]
    engines = ["--colocate", "--rollout-num-gpus", "4", "--rollout-num-gpus-per-engine", "2", "--check-weight-update-equal"]
    runs = {
        "sliced": [*flags, *engines, "--save-debug-rollout-data", pattern],
        "one": ["--load-debug-rollout-data", pattern],
    }
    for name, of_run in runs.items():
        done = run_slime(train_command(tmp_path, tmp_path / name, rollouts=2, extra=of_run))
        assert done.returncode == 0, done.stdout + done.stderr
        if name == "sliced":
            assert done.stdout.count("tensors are the same in trainer and engines") == 2
    sliced = numbers_that_repeat(tmp_path / "sliced")
    for numbers in sliced.values():
        assert 0 < numbers["train/train_rollout_logprob_abs_diff"] < rounding
    assert_same_training(sliced, numbers_that_repeat(tmp_path / "one"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (layout(2, extra=["--expert-model-parallel-size", "2"]), "--expert-model-parallel-size 2: the model has no experts"),
        (layout(3, extra=["--expert-model-parallel-size", "2"]), "should divide the 3 ranks of a pipeline stage"),
    ],
)
def test_experts_that_cannot_be_divided_are_refused(work, tmp_path, flags, message):
    done = run_slime(train_command(work, tmp_path / "run", rollouts=1, extra=flags))
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (layout(3, tp=2), "--actor-num-gpus-per-node 3: should be a multiple of --tensor-model-parallel-size 2"),
        (layout(2, tp=2, extra=["--recompute-granularity", "selective"]), "--recompute-granularity selective: "),
        (layout(1, extra=["--decoder-first-pipeline-num-layers", "1"]), "needs --pipeline-model-parallel-size above 1"),
        (layout(8, tp=8), "--tensor-model-parallel-size 8: does not divide the model's 4 attention heads"),
        (layout(8, pp=8), "layers cannot be cut into 8 ranges"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(work, tmp_path, flags, message):
    done = run_slime(train_command(work, tmp_path / "run", rollouts=1, extra=flags))
    assert done.returncode != 0
    assert message in done.stderr

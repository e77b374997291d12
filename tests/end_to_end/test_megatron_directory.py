"""--load of a checkpoint that Megatron-Core wrote: the command that is printed converts it, as it stands, and the run begins with the result."""

import json
import re
import shutil
import subprocess

from conftest import ROOT, SLIME, train_command

FIXTURE = ROOT / "tests" / "fixtures" / "torch_dist"


def refused(words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_the_printed_command_converts_what_is_loaded(work, tmp_path):
    model, written = tmp_path / "the model", tmp_path / "the run"
    shutil.copytree(FIXTURE, written)
    shutil.copytree(work / "model", model)
    (model / "model.safetensors").unlink()
    config = json.loads((FIXTURE / "origin" / "config.json").read_text())  # the sizes that the checkpoint has
    (model / "config.json").write_text(json.dumps({**json.loads((model / "config.json").read_text()), **config}))
    data = tmp_path / "data.jsonl"  # of characters alone: the checkpoint has 96 tokens
    data.write_text("".join(json.dumps({"prompt": f"{n}+{n}=", "label": str(2 * n)}) + "\n" for n in range(10, 18)))
    words = [
        str(SLIME), "train", "--hf-checkpoint", str(model), "--prompt-data", str(data), "--input-key", "prompt", "--label-key", "label",
        "--rm-type", "random", "--rollout-batch-size", "4", "--n-samples-per-prompt", "2", "--global-batch-size", "8", "--num-rollout", "1",
        "--rollout-max-response-len", "4", "--fp32", "--num-threads", "1", "--device", "cpu", "--run-dir", str(tmp_path / "r"),
    ]  # fmt: skip
    said = refused([*words, "--load", str(written)])
    command, output = re.search(r"convert it, (python3 .*), and give (.*) in its place", said).groups()
    converted = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert converted.returncode == 0, converted.stderr
    assert f"{output} is what it was converted to" in refused([*words, "--load", str(written)])
    done = subprocess.run([*words, "--load", output], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "a model directory: the run begins at rollout 0 with its weights" in done.stdout + done.stderr


def test_a_model_directory_that_cannot_be_read_says_why(work, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(work / "model", broken)
    config = json.loads((broken / "config.json").read_text())
    del config["max_position_embeddings"]
    (broken / "config.json").write_text(json.dumps(config))
    said = refused([*train_command(work, tmp_path / "r", rollouts=1), "--load", str(broken)])
    assert "this is a model directory that cannot be read: " in said and "max_position_embeddings is missing" in said

"""Runs with --true-on-policy on a GPU: responses are decoded fast, verified in the trainer's arithmetic, and agree to the bit."""

import subprocess
import sys

import pytest
from conftest import ROOT, metric, run_slime, train_command
from visible_gpus import num_gpus

pytestmark = pytest.mark.skipif(num_gpus() == 0, reason="no NVIDIA GPU")

FORMS = {
    "plain": [],
    "chunked prompts": ["--sglang-chunked-prefill-size", "20"],
    "few at a time": ["--sglang-max-running-requests", "3"],
    "several steps": ["--global-batch-size", "4"],
    "no sharing": ["--no-prefix-sharing"],
    "warm": ["--rollout-temperature", "0.7"],
    "one token at a time": ["--rollout-verify-tokens", "1"],
    "recomputed": ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"],
    "selective": ["--recompute-granularity", "selective"],
}


@pytest.fixture(scope="module")
def with_heads(work, tmp_path_factory):
    """One folder like `work`, of a model whose heads have 64 numbers."""
    folder = tmp_path_factory.mktemp("heads")
    made = [sys.executable, str(ROOT / "tools" / "tiny_model.py"), str(folder / "model"), "--hidden", "256", "--head-dim", "64"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    (folder / "data").symlink_to(work / "data")
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_engine_and_trainer_agree_to_the_bit(with_heads, tmp_path, form):
    extra = ["--true-on-policy", "--rollout-max-response-len", "40", *FORMS[form]]
    made = train_command(with_heads, tmp_path / "run", rollouts=4, extra=extra)
    made.remove("--fp32")
    made[made.index("--device") + 1] = "cuda"
    done = run_slime(made)
    assert done.returncode == 0, done.stdout + done.stderr
    differences = metric(tmp_path / "run", "train/train_rollout_logprob_abs_diff")
    assert differences and not any(differences[:1] if form == "several steps" else differences)
    redrawn = metric(tmp_path / "run", "rollout/verify_redrawn")
    assert len(redrawn) == 4 and all(share < 0.1 for share in redrawn)


def test_partial_rollouts_agree(with_heads, tmp_path):
    extra = ["--true-on-policy", "--rollout-max-response-len", "40", "--partial-rollout", "--over-sampling-batch-size", "8"]
    extra += ["--sglang-max-running-requests", "5"]
    made = train_command(with_heads, tmp_path / "run", rollouts=6, extra=extra)
    made.remove("--fp32")
    made[made.index("--device") + 1] = "cuda"
    done = run_slime(made)
    assert done.returncode == 0, done.stdout + done.stderr

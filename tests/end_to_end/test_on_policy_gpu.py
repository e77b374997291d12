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


MODELS = {"dense": [], "experts": ["--experts", "8"]}
# Of two nearly equal scores rounding chooses one expert or the other, and then another token is more often drawn.
MOST_REDRAWN = {"dense": 0.1, "experts": 0.5}


@pytest.fixture(scope="module")
def models(work, tmp_path_factory):
    """One folder like `work` for each model, whose heads have 64 numbers."""
    folders = {}
    for name, more in MODELS.items():
        folders[name] = tmp_path_factory.mktemp(name)
        made = [sys.executable, str(ROOT / "tools" / "tiny_model.py"), str(folders[name] / "model"), "--hidden", "256", "--head-dim", "64", *more]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        (folders[name] / "data").symlink_to(work / "data")
    return folders


def trained(folder, run_dir, *, rollouts, extra):
    made = train_command(folder, run_dir, rollouts=rollouts, extra=["--true-on-policy", "--rollout-max-response-len", "40", *extra])
    made.remove("--fp32")
    made[made.index("--device") + 1] = "cuda"
    done = run_slime(made)
    assert done.returncode == 0, done.stdout + done.stderr
    return metric(run_dir, "train/train_rollout_logprob_abs_diff")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", MODELS)
def test_engine_and_trainer_agree_to_the_bit(models, tmp_path, model, form):
    differences = trained(models[model], tmp_path / "run", rollouts=4, extra=FORMS[form])
    assert differences and not any(differences[:1] if form == "several steps" else differences)
    redrawn = metric(tmp_path / "run", "rollout/verify_redrawn")
    assert len(redrawn) == 4 and all(share < MOST_REDRAWN[model] for share in redrawn)


def test_experts_agree_for_twenty_steps(models, tmp_path):
    differences = trained(models["experts"], tmp_path / "run", rollouts=20, extra=["--use-rollout-routing-replay"])
    assert len(differences) == 20 and not any(differences)


@pytest.mark.nightly
@pytest.mark.parametrize("model", MODELS)
def test_two_hundred_steps_agree(models, tmp_path, model):
    extra = ["--sglang-chunked-prefill-size", "20"]
    differences = trained(models[model], tmp_path / "run", rollouts=200, extra=extra)
    assert len(differences) == 200 and not any(differences)


@pytest.mark.parametrize("model", MODELS)
def test_partial_rollouts_agree(models, tmp_path, model):
    extra = ["--partial-rollout", "--over-sampling-batch-size", "8", "--sglang-max-running-requests", "5"]
    trained(models[model], tmp_path / "run", rollouts=6, extra=extra)

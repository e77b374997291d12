"""Trackers of a run: TensorBoard's own reader of its event files, and a package that fails in the middle."""

import os

import pytest
from conftest import run_slime, train_command

FAILING_TRACKIO = """
def Table(columns, data): return data
def init(**options): print("begun", options["project"], options["name"])
def log(row, step):
    if step >= 1: raise OSError("disk of the tracker is full")
def finish(): pass
"""


@pytest.fixture(scope="module")
def followed(work, tmp_path_factory):
    """A run whose tracker fails behind the first step, and what it said."""
    folder = tmp_path_factory.mktemp("followed")
    (folder / "trackio.py").write_text(FAILING_TRACKIO)
    command = train_command(work, folder / "run", rollouts=6, extra=["--report-to", "trackio", "--tracker-project", "sums"])
    done = run_slime(command, env={**os.environ, "PYTHONPATH": str(folder)})
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "run", done.stdout + done.stderr


def test_a_tracker_that_fails_is_told_once_and_the_run_goes_on(followed):
    run_dir, said = followed
    assert "begun sums run" in said
    assert said.count("--report-to trackio: OSError: disk of the tracker is full; the run goes on without it") == 1
    assert len((run_dir / "metrics.jsonl").read_text().splitlines()) == 6


def test_a_package_that_is_not_there_is_refused_with_the_cure(work, tmp_path):
    command = train_command(work, tmp_path / "run", extra=["--report-to", "mlflow", "comet"])
    assert "--report-to comet: should be wandb, mlflow, trackio, all, tensorboard or none" in run_slime(command).stderr
    (tmp_path / "mlflow.py").write_text("raise ModuleNotFoundError(\"No module named 'mlflow'\")")
    command.remove("comet")
    refused = run_slime(command, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert refused.returncode == 2
    assert "-m pip install mlflow`, or set SLIME_PYTHON" in refused.stderr


def test_tensorboard_reads_text_histograms_and_settings(followed):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from tensorboard.plugins.hparams import plugin_data_pb2

    events = reader.EventAccumulator(str(followed[0] / "tensorboard"), size_guidance={"histograms": 0, "tensors": 0})
    events.Reload()
    names = ["advantage", "log_prob_difference", "response_len", "reward"]
    assert sorted(events.Tags()["histograms"]) == [f"rollout/distribution/{name}" for name in names]
    rewards = events.Histograms("rollout/distribution/reward")
    assert [each.step for each in rewards] == list(range(6))
    assert all(each.histogram_value.num == 16 for each in rewards)
    [text, *_] = events.Tensors("rollout/samples")
    assert text.tensor_proto.string_val[0].decode().count("**Sample ") == 3
    settings = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    hparams = plugin_data_pb2.HParamsPluginData.FromString(settings).session_start_info.hparams
    assert hparams["--lr"].number_value == 1e-3
    assert hparams["--rm-type"].string_value == "random"

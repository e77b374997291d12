"""Logging functions as they are written for THUDM/slime: the usual numbers by its names, and their own beside them."""

import json
import shutil

import pytest
from conftest import metric
from test_rollout_hooks import hooked, samples, trained

pytestmark = pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")

OF_ROLLOUTS = """
def log_rollout(rollout_id, args, samples, rollout_extra_metrics, rollout_time):
    from slime.ray.rollout import compute_metrics_from_samples, compute_perf_metrics_from_samples
    from slime.utils import logging_utils
    from slime.utils.metric_utils import compute_rollout_step, dict_add_prefix

    log_dict = {**(rollout_extra_metrics or {})}
    log_dict |= dict_add_prefix(compute_metrics_from_samples(args, samples), "rollout/")
    log_dict |= dict_add_prefix(compute_perf_metrics_from_samples(args, samples, rollout_time), "perf/")
    log_dict["mine/groups"] = len({sample.group_index for sample in samples})
    log_dict["rollout/step"] = compute_rollout_step(args, rollout_id)
    logging_utils.log(args, log_dict, step_key="rollout/step")
    return TAKES_OVER
"""
OF_EVALUATIONS = """
def log_eval(rollout_id, args, data, extra_metrics):
    from slime.observability.rollout_metrics import compute_metrics_from_samples
    from slime.utils import logging_utils
    from slime.utils.metric_utils import compute_pass_rate, compute_rollout_step, dict_add_prefix

    log_dict = extra_metrics or {}
    for key, each in data.items():
        log_dict |= dict_add_prefix(compute_metrics_from_samples(args, each["samples"]), f"eval/{key}/")
        log_dict |= dict_add_prefix(compute_pass_rate(each["rewards"], args.n_samples_per_eval_prompt), f"eval/{key}-")
    log_dict["eval/step"] = compute_rollout_step(args, rollout_id)
    logging_utils.log(args, log_dict, step_key="eval/step")
"""


@pytest.mark.parametrize("takes_over", [True, False])
def test_of_rollouts(work, takes_over):
    run_dir = work / f"logging-{takes_over}"
    done = hooked(work, run_dir, OF_ROLLOUTS.replace("TAKES_OVER", str(takes_over)), ["--custom-rollout-log-function-path", "own.py"])
    trained(done, run_dir)
    assert metric(run_dir, "mine/groups") == [4, 4]
    lengths = [row["response_length"] for row in samples(run_dir)]
    assert metric(run_dir, "rollout/response_len/mean") == pytest.approx([sum(lengths[:16]) / 16, sum(lengths[16:]) / 16])
    assert len(metric(run_dir, "rollout/truncated_ratio")) == len(metric(run_dir, "perf/longest_sample_tokens_per_sec")) == 2
    assert all(0 < seconds < 60 for seconds in metric(run_dir, "perf/rollout_time"))


def test_of_evaluations(work):
    run_dir = work / "logging-eval"
    flags = ["--custom-eval-rollout-log-function-path", "own.py", "--eval-interval", "1", "--n-samples-per-eval-prompt", "2"]
    flags += ["--eval-prompt-data", "sums", str(work / "data" / "test.jsonl")]
    trained(hooked(work, run_dir, OF_EVALUATIONS, flags), run_dir)
    # Before the first step and behind each; in the row of its scores.
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "eval/sums" in row]
    assert len(rows) == 3 and all(0 <= row["eval/sums-pass@2"] <= 1 and row["eval/sums/response_len/max"] == 6 for row in rows)
    assert len(metric(run_dir, "eval/sums-pass@2")) == 3

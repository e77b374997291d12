"""Copies of the original's rollout function, as users keep them, in runs: that of slime's first months and that of 0.4."""

import json
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, metric, run_slime
from test_rollout_hooks import fates, hooked, samples, trained

pytestmark = pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")

FORKS = ROOT / "tests" / "fixtures" / "forks"
EVALUATES = ["--eval-prompt-data", "own", "DATA", "--eval-interval", "2"]


def forked(work, run_dir, name, flags=(), rollouts=2):
    flags = [str(work / "data" / "test.jsonl") if flag == "DATA" else flag for flag in flags]
    code = (FORKS / name).read_text()
    return hooked(work, run_dir, code, ["--rollout-function-path", "own.generate_rollout", *flags], rollouts=rollouts)


@pytest.mark.parametrize("name", ["first_fork.py", "newest_fork.py"])
def test_a_fork_trains_as_it_is(work, name):
    run_dir = work / f"fork-{name}"
    trained(forked(work, run_dir, name, EVALUATES if name == "newest_fork.py" else []), run_dir)
    rows = samples(run_dir)
    assert len(rows) == 32 and [row["index"] for row in rows] == list(range(32))
    for row in rows:
        assert all(abs(a - b) < 1e-3 for a, b in zip(row["train_log_probs"], row["rollout_log_probs"]))


@pytest.mark.parametrize("name", ["first_fork.py", "newest_fork.py"])
def test_what_a_fork_aborts_it_gives_back_and_goes_on_with(work, name):
    run_dir = work / f"partial-{name}"
    flags = ["--partial-rollout", "--over-sampling-batch-size", "8", "--sglang-server-concurrency", "16", "--rollout-max-response-len", "60"]
    trained(forked(work, run_dir, name, flags, rollouts=3), run_dir, rollouts=3)
    rows = samples(run_dir)
    assert len(rows) == 48 and len({row["index"] for row in rows}) == 48
    for row in rows:
        assert len(row["rollout_log_probs"]) == row["response_length"] <= 60
        assert sum(count for _, count in row["weight_versions"]) == row["response_length"]
    # A group that is finished when the step has enough is dropped, by the original too.
    assert {record["reason"] for record in fates(run_dir, "failed")} <= {"lost by the rollout function"}


def test_filters_of_slime_answer_forks_of_all_ages(work):
    """The oldest one takes the answer of a filter as a truth value."""
    run_dir = work / "fork-filter"
    path = "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"
    trained(forked(work, run_dir, "first_fork.py", ["--dynamic-sampling-filter-path", path]), run_dir)
    groups = {}
    for row in samples(run_dir):
        groups.setdefault(row["group_index"], set()).add(row["reward"])
    assert all(len(rewards) == 2 for rewards in groups.values())


def test_spans_are_in_the_rollout_files_the_metrics_and_a_timeline(work):
    run_dir = work / "fork-spans"
    done = forked(work, run_dir, "newest_fork.py")
    trained(done, run_dir)
    events = samples(run_dir)[0]["user_fields"]["extra"]["trace"]["events"]
    names = [event["name"] for event in events if event["type"] == "span_start"]
    assert names == ["group", "one", "sglang_generate", "reward_model"]
    by_id = {event["span_id"]: event for event in events if event["type"] == "span_start"}
    engine = next(event for event in by_id.values() if event["name"] == "sglang_generate")
    assert by_id[engine["parent_span_id"]]["name"] == "one"
    end = next(event for event in events if event["type"] == "span_end" and event["name"] == "sglang_generate")
    assert end["attrs"]["finish_reason"] in ("length", "stop") and end["attrs"]["completion_tokens"] > 0
    assert metric(run_dir, "rollout/trace/sglang_generate/count") == [16, 16]
    assert all(seconds > 0 for seconds in metric(run_dir, "rollout/trace/sglang_generate/mean_seconds"))
    assert metric(run_dir, "rollout/mine/oldest") == [0, 0]
    log = (run_dir / "plugin" / "host-0.log").read_text()
    assert [line for line in log.splitlines() if line.startswith("accepted")] == ["accepted 0", "accepted 1"]
    shown = run_slime(["python3", str(ROOT / "tools" / "rollout_trace.py"), str(run_dir)])
    assert shown.returncode == 0, shown.stderr
    spans = [event for event in json.loads(shown.stdout)["traceEvents"] if event["ph"] == "X"]
    assert len(spans) >= 32 * 4 and all(event["dur"] >= 0 for event in spans)


def test_what_slime_has_not_is_refused_before_a_run_with_what_to_use_instead(work):
    code = (
        "def generate_rollout(args, rollout_id, data_source, evaluation=False):\n"
        "    from slime.data.batch_builder import BatchBuilder\n"
        "    from slime.utils.http_utils import post, put\n"
        "    from slime.ray.rollout import RolloutManager\n"
        "    try:\n"
        "        from slime.data.codec import SampleCodec\n"
        "    except ImportError:\n"
        "        SampleCodec = None\n"
        "    import a_package_that_nobody_has\n"
    )
    run_dir = work / "fork-absent"
    done = hooked(work, run_dir, code, ["--rollout-function-path", "own.generate_rollout", "--dry-run"])
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert "own.py:2: slime.data.batch_builder of THUDM/slime is not here: --custom-convert-samples-to-train-data-path" in said
    assert "own.py:3: slime.utils.http_utils has no put; it has " in said
    assert "own.py:4: slime.ray.rollout has no RolloutManager; it has " in said and "SampleCodec" not in said
    assert not run_dir.exists()


def test_data_sources_under_their_new_names_are_the_programs_own(work):
    run_dir = work / "named-source"
    flags = ["--data-source-path", "slime.data.queue_data_source.QueueDataSource", "--partial-rollout"]
    trained(hooked(work, run_dir, "", flags), run_dir)
    assert not (run_dir / "plugin").exists() or not list(Path(run_dir / "plugin").glob("host-*.log")), "no host is needed"

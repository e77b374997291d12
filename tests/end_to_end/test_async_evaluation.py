"""Evaluations of `slime train-async` stop nothing, and are of one version of the weights; the timeline says who did what when."""

import json
import signal
import subprocess
import time

import pytest
from conftest import SLIME, metric, run_slime
from test_async import async_command


def with_evaluation(work, command, *, interval, extra=()):
    sets = ["--eval-prompt-data", "test", str(work / "data" / "test.jsonl"), "--eval-temperature", "0"]
    return [*command, "--eval-interval", str(interval), *sets, *extra]


def slow(work, run_dir, *, rollouts, interval, extra=()):
    """An evaluation takes many times as long as a step: its responses are long and many."""
    command = async_command(work, run_dir, rollouts=rollouts)
    at = command.index("--rollout-stop-token-ids")
    command = [*command[:at], "--rollout-stop-token-ids", "5"]
    long = ["--eval-temperature", "1", "--eval-max-response-len", "400", "--n-samples-per-eval-prompt", "32"]
    return with_evaluation(work, command, interval=interval, extra=[*long, "--max-staleness", "2", "--skip-eval-before-train", *extra])


def rows(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def evaluations(run_dir):
    return [row for row in rows(run_dir) if "eval/test" in row]


def timeline(run_dir):
    return [json.loads(line) for line in (run_dir / "timeline.jsonl").read_text().splitlines()]


def scores(row):
    """Of an evaluation, without what tells how it was made: a cache that is not empty at its beginning, versions, times."""
    return {k: v for k, v in row.items() if k.startswith("eval/test") and "cache" not in k}


def test_rows_tell_step_version_and_lag(work):
    run_dir = work / "beside-rows"
    done = run_slime(with_evaluation(work, async_command(work, run_dir), interval=4))
    assert done.returncode == 0, done.stdout + done.stderr
    made = {row["step"]: row for row in evaluations(run_dir)}
    assert sorted(made) == [0, 3, 7, 11]
    assert [made[step]["eval/weight_version/version"] for step in (0, 3, 7, 11)] == [0, 4, 8, 12]
    assert all(0 <= row["eval/weight_version/lag"] <= 12 and row["perf/eval_time"] > 0 for row in made.values())
    assert "an evaluation's engine" in done.stdout, "the table of memory has it"


def test_weights_that_were_not_published_are_not_evaluated(work):
    """Behind step 2 the engines have the weights of step 1: those are evaluated."""
    run_dir = work / "beside-interval"
    interval = ["--update-weights-interval", "2", "--skip-eval-before-train"]
    done = run_slime(with_evaluation(work, async_command(work, run_dir, rollouts=6, extra=interval), interval=3))
    assert done.returncode == 0, done.stdout + done.stderr
    assert {row["step"]: row["eval/weight_version/version"] for row in evaluations(run_dir)} == {2: 1, 5: 3}


@pytest.fixture(scope="module")
def slow_run(work):
    run_dir = work / "beside-slow"
    done = run_slime(slow(work, run_dir, rollouts=12, interval=12, extra=["--num-rollout", "40", "--keep-checkpoints", "100"]))
    assert done.returncode == 0, done.stdout + done.stderr
    return run_dir


def test_training_and_generation_go_on_during_an_evaluation(slow_run):
    order = [(row["step"], "eval/test" in row) for row in rows(slow_run)]
    assert order.index((11, True)) > order.index((13, False)), "steps ended while it ran"
    assert max(metric(slow_run, "eval/weight_version/lag")) >= 2
    inside = [line for line in timeline(slow_run) if sum(ms for _, _, ms in line.get("evaluation", [])) == line["ms"] > 0]
    assert inside, "steps from their beginning to their end beside an evaluation"
    assert any("generate" in [name for name, _, _ in line.get("engine", [])] for line in inside)
    assert all("evaluate" not in [name for name, _, _ in line["trainer"]] for line in inside)


@pytest.mark.parametrize("draws", ["sampled", "greedy"])
def test_scores_are_those_of_the_same_weights_at_rest(work, slow_run, draws):
    """`slime train` evaluates a checkpoint before it trains: the same numbers as beside training."""
    run_dir, step, temperature = slow_run, 11, "1"
    if draws == "greedy":
        run_dir, step, temperature = work / "beside-greedy", 5, "0"
        done = run_slime(slow(work, run_dir, rollouts=6, interval=6, extra=["--eval-temperature", "0"]))
        assert done.returncode == 0, done.stdout + done.stderr
    behind = next(row for row in evaluations(run_dir) if row["step"] == step)
    at_rest = slow(work, work / f"beside-at-rest-{draws}", rollouts=1, interval=100, extra=["--eval-temperature", temperature])
    at_rest.remove("--skip-eval-before-train")
    staleness = at_rest.index("--max-staleness")
    at_rest = [*at_rest[:staleness], *at_rest[staleness + 2 :]]
    at_rest[1] = "train"
    at_rest[at_rest.index("--hf-checkpoint") + 1] = str(run_dir / "checkpoints" / f"iter_{step:07}")
    done = run_slime(at_rest)
    assert done.returncode == 0, done.stdout + done.stderr
    assert scores(evaluations(work / f"beside-at-rest-{draws}")[0]) == scores(behind)


def test_an_evaluation_that_a_kill_took_is_made_again(work):
    run_dir = work / "beside-killed"
    command = slow(work, run_dir, rollouts=14, interval=6)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wanted = [f"iter_{step:07}" for step in (6, 7, 8, 9, 10)]  # the evaluation behind step 5 runs
    deadline = time.monotonic() + 120
    while not any((run_dir / "checkpoints" / name / "COMMITTED").exists() for name in wanted) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert not evaluations(run_dir), "too fast to be killed meanwhile"
    # Not of `latest`: the process may have died between a checkpoint and its link.
    first_step = max(int(path.parent.name[5:]) for path in (run_dir / "checkpoints").glob("iter_*/COMMITTED")) + 1
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    made = evaluations(run_dir)
    assert made[0]["step"] == first_step - 1 and made[0]["eval/weight_version/version"] == first_step
    assert [row["step"] for row in made][1:] == [step for step in (11, 13) if step >= first_step]
    again = run_slime([*command[: command.index("--num-rollout") + 1], "15", *command[command.index("--num-rollout") + 2 :]])
    assert again.returncode == 0, again.stdout + again.stderr
    assert [row["step"] for row in evaluations(run_dir)] == [row["step"] for row in made] + [14], "what has its row is not made again"


def test_ctrl_c_abandons_an_evaluation_and_says_so(work):
    run_dir = work / "beside-interrupted"
    command = slow(work, run_dir, rollouts=500, interval=2, extra=["--n-samples-per-eval-prompt", "200"])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 120
    while not (run_dir / "latest").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert "the evaluation after step 1 was abandoned" in output
    assert not evaluations(run_dir)


def test_the_second_engine_gives_its_memory_back(work):
    run_dir = work / "beside-memory"
    extra = ["--eval-max-response-len", "400", "--n-samples-per-eval-prompt", "2", "--num-rollout", "80"]
    done = run_slime(with_evaluation(work, async_command(work, run_dir), interval=2, extra=extra))
    assert done.returncode == 0, done.stdout + done.stderr
    resident = metric(run_dir, "perf/rss_bytes")
    assert max(resident[60:]) - max(resident[10:20]) < 24e6, "thirty evaluations later"


def test_lanes_are_in_the_timeline_and_in_the_report(slow_run):
    lines = timeline(slow_run)
    assert {"trainer", "engine", "rollout", "evaluation"} <= {lane for line in lines for lane in line}
    assert [line["step"] for line in lines if line["steps"]] == list(range(40))
    for line in lines:
        for lane in ("trainer", "engine", "evaluation"):
            assert sum(ms for _, _, ms in line.get(lane, [])) <= line["ms"] + 1
    done = run_slime([str(SLIME), "report", str(slow_run)])
    assert done.returncode == 0, done.stdout + done.stderr
    page = (slow_run / "report.html").read_text()
    data = json.loads(page.split('id="data">', 1)[1].split("</script>", 1)[0])
    assert {lane["name"] for lane in data["timeline"]["lanes"]} >= {"trainer", "engine", "evaluation"}
    assert data["timeline"]["window"]["ends"][-1][0] == 39
    assert max(data["metrics"]["rollout/queue/finished_groups"]["values"]) > 0


def test_synchronous_and_colocated_runs_evaluate_as_ever(work):
    run_dir = work / "beside-colocated"
    done = run_slime(with_evaluation(work, async_command(work, run_dir, extra=["--colocate"]), interval=6))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["step"] for row in evaluations(run_dir)] == [0, 5, 11]
    assert not metric(run_dir, "eval/weight_version/lag")
    assert any("evaluate" in [name for name, _, _ in line["trainer"]] for line in timeline(run_dir))

"""`--flush-cache-interval`: which updates interrupt requests, and what goes on over the others."""

import json
import subprocess

import pytest
from conftest import SLIME, metric, run_slime, train_command

STEPS = 16  # enough that some request is on its way at an update that interrupts none
ENDS = ["5"]  # responses are long: they take about as long as a step

COUNTED = """
from slime.rollout.sglang_rollout import generate as stock

async def generate(args, sample, sampling_params):
    sample.metadata["requests"] = sample.metadata.get("requests", 0) + 1
    return await stock(args, sample, sampling_params)
"""


def command_for(work, run_dir, interval, *, rollouts=STEPS, extra=()):
    """`slime train`: the interval alone chooses the schedule."""
    command = train_command(work, run_dir, rollouts=rollouts)
    command[command.index("--rollout-max-response-len") + 1] = "400"
    command[command.index("--keep-checkpoints") + 1] = "0"
    flags = ["--flush-cache-interval", str(interval), "--sglang-server-concurrency", "4"]  # one group in flight: the engine is slower than the trainer
    return [*command, *flags, "--rollout-stop-token-ids", *ENDS, *extra]


def samples(run_dir):
    for path in sorted((run_dir / "rollouts").glob("step_*.jsonl")):
        for line in path.open():
            yield json.loads(line)


def first_log_prob(run_dir, sample):
    """Of the first token of the response, by the weights that drew it; None: no checkpoint has those."""
    version = sample["weight_versions"][0][0]
    model = run_dir / "checkpoints" / f"iter_{version - 1:07d}"
    if not model.exists():
        model = next(run_dir.glob(f"**/iter_{version - 1:07d}"), None)
    if version == 0 or model is None:
        return None
    prompt = len(sample["tokens"]) - sample["response_length"]
    ids = json.dumps({"ids": sample["tokens"][: prompt + 1]})
    done = subprocess.run([str(SLIME), "logprobs", "--model", str(model)], input=ids, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["logprobs"][-1]


@pytest.mark.parametrize("interval, flushed", [(-1, [1]), (0, [1]), (2, [*range(1, STEPS, 2)]), (3, [*range(1, STEPS, 3)])])
def test_updates_interrupt_by_the_rule_of_the_interval(work, interval, flushed):
    run_dir = work / f"flush-{interval}"
    done = run_slime(command_for(work, run_dir, interval))
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert f"--flush-cache-interval {interval}: generation goes on while the trainer trains" in said
    assert said.count("responses of any age are trained") == 1
    # Step s tells of the update to version s.
    told = metric(run_dir, "rollout/engine/update_flushed")
    assert [version + 1 for version, has in enumerate(told) if has] == flushed
    assert metric(run_dir, "rollout/staleness/max") and metric(run_dir, "rollout/staleness/multi_version_frac")
    # A sample goes on over an update in place, and its first token keeps the log-prob of the weights that drew it.
    over = [sample for sample in samples(run_dir) if len(sample["weight_versions"]) > 1]
    assert any(sample["weight_versions"][1][0] not in flushed for sample in over)
    checked = 0
    for sample in over[:6]:
        log_prob = first_log_prob(run_dir, sample)
        if log_prob is not None:
            assert sample["rollout_log_probs"][0] == pytest.approx(log_prob, abs=1e-4)
            checked += 1
    assert checked or interval > 2


def test_a_run_that_goes_on_flushes_first(work):
    run_dir = work / "flush-continued"
    for rollouts in (3, 6):
        done = run_slime(command_for(work, run_dir, 0, rollouts=rollouts))
        assert done.returncode == 0, done.stdout + done.stderr
    # By step: 0 and 3 are the first of their processes and tell of no update.
    assert metric(run_dir, "rollout/engine/update_flushed") == [1, 0, 1, 0]


def test_one_http_request_goes_on_over_an_update(work):
    run_dir, folder = work / "flush-http", work / "flush-http-code"
    folder.mkdir()
    (folder / "counted.py").write_text(COUNTED)
    extra = ["--custom-generate-function-path", "counted.py"]
    done = run_slime(command_for(work, run_dir, 0, extra=extra), cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    spanning = [
        sample for sample in samples(run_dir) if sample["metadata"].get("requests") == 1 and len(sample["weight_versions"]) > 1
    ]
    assert spanning
    assert all(sample["response_length"] == len(sample["rollout_log_probs"]) for sample in spanning)
    for sample in spanning[:4]:
        log_prob = first_log_prob(run_dir, sample)
        if log_prob is not None:
            assert sample["rollout_log_probs"][0] == pytest.approx(log_prob, abs=1e-4)


def test_the_schedule_is_refused_where_trainer_and_engine_take_turns(work):
    refused = run_slime(command_for(work, work / "flush-refused", 2, extra=["--colocate", "--update-mode", "drain"]))
    said = refused.stdout + refused.stderr
    assert refused.returncode == 2
    assert "--flush-cache-interval 2 and --colocate" in said and "--flush-cache-interval 2 and --update-mode drain" in said

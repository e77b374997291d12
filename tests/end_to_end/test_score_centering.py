"""Runs with --use-score-centering: what they record, through kills, dumps, Python functions and several ranks."""

import json
import math
import os
import re
import signal
import subprocess
import time

import pytest
from conftest import SLIME, metric, run_slime, train_command, weights
from test_async import async_command, samples

MODES = {
    "head": ["--use-score-centering", "--score-centering-top-k", "8", "--use-tis"],
    "support": ["--use-score-centering", "--rollout-top-p", "0.9", "--use-tis"],
}
REWARD = """
import os, time
def reward(args, sample, **kwargs):
    while os.path.exists("wait"):
        time.sleep(0.05)
    if sample.group_index == 12 and os.path.exists("then_wait"):  # the fourth step has begun
        os.rename("then_wait", "wait")
    return float(sample.index % 3)
"""
STOCK = "from slime.rollout.sglang_rollout import generate\n"
# Two turns and a tool, in the shape of the original's functions.
TURNS = """
from slime.utils.http_utils import post
from slime.utils.score_centering import score_centering_request

async def generate(args, sample, sampling_params, evaluation=False):
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    assert args.use_score_centering != evaluation, "an evaluation records nothing"
    for turn in range(2):
        params = {**sampling_params, "max_new_tokens": 3, "ignore_eos": True}
        payload = {"input_ids": sample.tokens, "sampling_params": params, "return_logprob": True}
        payload.update(score_centering_request(args, params))
        output = await post(url, payload)
        drawn = output["meta_info"]["output_token_logprobs"]
        sample.append_response_tokens(args, tokens=[entry[1] for entry in drawn], log_probs=[entry[0] for entry in drawn],
                                      meta_info=output["meta_info"], text=output["text"])
        if turn == 0:
            sample.append_response_tokens(args, tokens=[11, 12], trainable=False)
    sample.status = sample.Status.TRUNCATED
    return sample
"""
PLAIN = """
from slime.utils.http_utils import post

async def generate(args, sample, sampling_params):
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    output = await post(url, {"input_ids": sample.tokens, "sampling_params": sampling_params, "return_logprob": True})
    drawn = output["meta_info"]["output_token_logprobs"]
    sample.tokens, sample.response_length = sample.tokens + [entry[1] for entry in drawn], len(drawn)
    sample.rollout_log_probs, sample.response = [entry[0] for entry in drawn], output["text"]
    sample.status = sample.Status.COMPLETED
    return sample
"""


def run(command, cwd=None):
    done = run_slime(command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def dumped(folder, step):
    return [json.loads(line) for line in (folder / f"{step}.jsonl").read_text().splitlines()]


def check_record(sample, mode):
    """Of each trained token, as the trainer wants it."""
    length = sample["response_length"]
    tokens, mask = sample["tokens"][-length:], sample["loss_mask"] or [1] * length
    for t in range(length):
        if mode == "support":
            begin, end = sample["rollout_top_p_token_offsets"][t : t + 2]
            own = dict(zip(sample["rollout_top_p_token_ids"][begin:end], sample["rollout_top_p_log_probs"][begin:end]))
            if not mask[t]:
                assert not own
                continue
            assert sum(map(math.exp, own.values())) == pytest.approx(1, abs=1e-5)
            assert own[tokens[t]] == pytest.approx(sample["rollout_log_probs"][t], abs=1e-5)
        else:
            ids, log_probs = (sample[f"rollout_topk_{name}"][8 * t : 8 * t + 8] for name in ("token_ids", "log_probs"))
            assert len(set(ids)) == 8 and sum(map(math.exp, log_probs)) <= 1.0001
            if mask[t] and tokens[t] in ids:
                assert log_probs[ids.index(tokens[t])] == pytest.approx(sample["rollout_log_probs"][t], abs=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_killed_in_the_middle_of_a_step_it_goes_on_bit_for_bit(work, tmp_path, mode):
    (tmp_path / "reward.py").write_text(REWARD)
    extra = ["--custom-rm-path", "reward.py:reward", *MODES[mode]]
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    run(train_command(work, straight, rollouts=5, extra=extra), cwd=tmp_path)
    (tmp_path / "then_wait").touch()
    command = train_command(work, killed, rollouts=5, extra=extra)
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (tmp_path / "wait").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    os.unlink(tmp_path / "wait")
    run(command, cwd=tmp_path)
    assert weights(killed) == weights(straight)
    for name in ("correction", "sampler_head_mass", "train_head_mass", "importance_weight"):
        assert len(metric(straight, f"train/sc_{name}")) == 5, name
    masses = metric(straight, "train/sc_sampler_head_mass")
    assert all(mass == pytest.approx(1, abs=1e-5) if mode == "support" else 0 < mass < 1.0001 for mass in masses), masses


@pytest.mark.parametrize("mode", MODES)
def test_responses_that_go_on_behind_updates_and_a_kill_keep_their_record(work, tmp_path, mode):
    """Deterministic and asynchronous: responses are made by several versions, and a checkpoint has halves of some."""
    dump = ["--save-debug-rollout-data", str(tmp_path / "{rollout_id}.jsonl")]
    schedule = ["--deterministic-schedule", "--schedule-round", "4", "--save-interval", "1", *MODES[mode]]
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    run(async_command(work, straight, extra=[*schedule, *dump]))
    command = async_command(work, killed, extra=schedule)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (killed / "metrics.jsonl").exists() or (killed / "metrics.jsonl").read_text().count('"train/loss"') < 3:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run(command)
    drawn = [sample for path in sorted(tmp_path.glob("*.jsonl")) for sample in dumped(tmp_path, path.stem)]
    for sample in drawn:
        check_record(sample, mode)
    assert any(len(sample["weight_versions"]) > 1 for sample in drawn), "responses go on behind updates"
    after = {sample["index"]: sample for _, sample in samples(killed)}
    assert len(after) == len(drawn)
    if mode == "support":
        for sample in after.values():
            check_record(sample, mode)


def test_waiting_groups_that_begin_anew_because_the_record_changed_are_told(work, tmp_path):
    schedule = ["--deterministic-schedule", "--schedule-round", "4", "--save-interval", "1"]
    killed = tmp_path / "killed"
    process = subprocess.Popen(
        async_command(work, killed, extra=[*schedule, *MODES["head"]]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while not (killed / "metrics.jsonl").exists() or (killed / "metrics.jsonl").read_text().count('"train/loss"') < 3:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    again = run(async_command(work, killed, extra=[*schedule, *MODES["head"], "--score-centering-top-k", "4"]))
    said = " ".join((again.stdout + again.stderr).split())
    told = re.search(r"--score-centering-top-k: changed since the checkpoint, .*? (\d+) waiting groups? begin anew, (\d+) sampled tokens", said)
    assert told and int(told[1]) > 0, said
    audit = json.loads(run([str(SLIME), "ledger", str(killed), "--json"]).stdout)
    assert audit["checkpoint"]["tokens"]["discarded"] == int(told[2])


@pytest.mark.parametrize("mode", MODES)
def test_a_dump_is_trained_as_its_run_was(work, tmp_path, mode):
    straight, replayed = tmp_path / "straight", tmp_path / "replayed"
    dump = str(tmp_path / "{rollout_id}.jsonl")
    run(train_command(work, straight, rollouts=3, extra=[*MODES[mode], "--save-debug-rollout-data", dump]))
    for sample in dumped(tmp_path, 1):
        check_record(sample, mode)
    run(train_command(work, replayed, rollouts=3, extra=[*MODES[mode], "--load-debug-rollout-data", dump]))
    assert weights(replayed) == weights(straight)
    plain = tmp_path / "plain"
    done = run_slime(train_command(work, plain, rollouts=3, extra=["--rollout-top-p", "0.9"] if mode == "support" else []))
    assert done.returncode == 0, done.stderr
    files = str(plain / "rollouts" / "step_{rollout_id:06d}.jsonl")
    done = run_slime(train_command(work, tmp_path / "without", rollouts=3, extra=[*MODES[mode], "--load-debug-rollout-data", files]))
    assert done.returncode == 2 and "use-score-centering: sample" in done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("code", [STOCK, TURNS], ids=["stock", "turns"])
@pytest.mark.parametrize("mode", MODES)
def test_functions_in_python_record_the_same(work, tmp_path, mode, code):
    (tmp_path / "my_generate.py").write_text(code)
    run_dir = tmp_path / "run"
    extra = ["--custom-generate-function-path", "my_generate.py", "--save-debug-rollout-data", str(tmp_path / "{rollout_id}.jsonl"),
             "--eval-prompt-data", "test", str(work / "data" / "test.jsonl"), "--eval-interval", "2", "--eval-temperature", "0"]  # fmt: skip
    run(train_command(work, run_dir, rollouts=2, extra=[*MODES[mode], *extra]), cwd=tmp_path)
    for sample in dumped(tmp_path, 1):
        check_record(sample, mode)
        assert (0 in (sample["loss_mask"] or [])) == (code is TURNS)
    assert len(metric(run_dir, "train/sc_correction")) == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_function_that_keeps_no_record_is_told_what_to_send(work, tmp_path, mode):
    (tmp_path / "my_generate.py").write_text(PLAIN)
    extra = ["--custom-generate-function-path", "my_generate.py", "--max-failed-groups", "0", "--max-failed-group-share", "0"]
    done = run_slime(train_command(work, tmp_path / "run", rollouts=2, extra=[*MODES[mode], *extra]), cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "which --use-score-centering trains with; Sample.append_response_tokens" in done.stdout + done.stderr


@pytest.mark.parametrize("mode", MODES)
def test_two_context_parallel_ranks_train_it_too(work, tmp_path, mode):
    losses = []
    for ranks in ("1", "2"):
        run_dir = tmp_path / ranks
        run(train_command(work, run_dir, rollouts=2, extra=[*MODES[mode], "--context-parallel-size", ranks, "--actor-num-gpus-per-node", ranks]))
        losses.append(metric(run_dir, "train/sc_correction")[0])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


def test_more_tokens_than_the_model_has_are_refused_before_the_run(work, tmp_path):
    extra = ["--use-score-centering", "--score-centering-top-k", "100000"]
    done = run_slime(train_command(work, tmp_path / "run", rollouts=2, extra=[*extra, "--dry-run"]))
    assert done.returncode == 2 and "--score-centering-top-k 100000: the model has" in done.stdout, done.stdout + done.stderr

"""Partial rollout, over-sampling, the dynamic filter, surplus rewards and evaluation: what each of them does to a run."""

import http.server
import json
import threading
import time

import pytest
from conftest import numbers_that_repeat, run_slime, train_command, weights

FILTER = "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"
ROLLOUTS = 6
BATCH = 4
# One in six tokens of the untrained model ends a response: lengths differ a lot.
ENDS = [str(token) for token in range(44)]


def forms_command(work, run_dir, *, rollouts=ROLLOUTS, extra=()):
    """Three times the prompts a step needs, half the groups dropped, rewards on four threads."""
    command = train_command(work, run_dir, rollouts=rollouts)
    for flag, value in (("--n-samples-per-prompt", "2"), ("--rollout-max-response-len", "40"), ("--global-batch-size", "8")):
        command[command.index(flag) + 1] = value
    return [
        *command, "--partial-rollout", "--over-sampling-batch-size", str(3 * BATCH), "--dynamic-sampling-filter-path", FILTER,
        "--reward-threads", "4", "--rollout-stop-token-ids", *ENDS, *extra,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def partial(work):
    run_dir = work / "partial"
    done = run_slime(forms_command(work, run_dir))
    assert done.returncode == 0, done.stdout + done.stderr
    return run_dir


def ledger(run_dir):
    """Ordinal -> its fates in order, without what a restart rolled back (there was none)."""
    fates = {}
    for line in (run_dir / "ledger.jsonl").read_text().splitlines():
        record = json.loads(line.split(" ", 1)[1])
        assert "rollback_to" not in record
        if "checkpoint" in record:
            continue
        fates.setdefault(record["ordinal"], []).append(record)
    return fates


def trained_samples(run_dir):
    """(step, sample) of everything that was trained."""
    for path in sorted((run_dir / "rollouts").glob("step_*.jsonl")):
        step = int(path.stem.split("_")[1])
        for line in path.open():
            yield step, json.loads(line)


def metric_rows(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def repeating(run_dir):
    """How much of a prompt was cached depends on who was in the engine together, and what was drawn beyond the end of a step
    (fates_that_repeat), so also its share of what was sampled, on the time."""
    steps = numbers_that_repeat(run_dir)
    of_time = ("rollout/avg_cached_tokens_per_sample", "rollout/prefix_cache_hit_rate", "rollout/untrained")
    return {step: {k: v for k, v in row.items() if not k.startswith(of_time)} for step, row in steps.items()}


def fates_that_repeat(run_dir):
    """How many tokens the engine drew beyond the end of a step is a matter of time."""
    fates = ledger(run_dir)
    for records in fates.values():
        for record in records:
            record.pop("discarded", None)
    return fates


@pytest.mark.parametrize("masks", [[], ["--mask-offpolicy-in-partial-rollout"]], ids=["trained", "masked"])
def test_five_equal_runs_give_one_model(work, masks):
    runs = []
    for again in range(5):
        run_dir = work / f"equal{len(masks)}-{again}"
        done = run_slime(forms_command(work, run_dir, extra=masks))
        assert done.returncode == 0, done.stdout + done.stderr
        runs.append(run_dir)
    for run_dir in runs[1:]:
        assert weights(run_dir) == weights(runs[0])
        assert repeating(run_dir) == repeating(runs[0])
        assert fates_that_repeat(run_dir) == fates_that_repeat(runs[0])


def test_dropped_groups_are_counted_by_reason_and_are_in_the_ledger(partial):
    counted = {}
    for row in metric_rows(partial):
        for name, value in row.items():
            if name.startswith("rollout/dynamic_filter/drop_"):
                reason = name.removeprefix("rollout/dynamic_filter/drop_")
                counted[reason] = counted.get(reason, 0) + value
    recorded = {}
    for fates in ledger(partial).values():
        if fates[-1]["fate"] == "filtered":
            recorded[fates[-1]["reason"]] = recorded.get(fates[-1]["reason"], 0) + 1
    assert set(counted) == {"zero_std_0", "zero_std_1"}
    assert counted == recorded


def test_no_group_without_two_rewards_is_trained(partial):
    rewards = {}
    for step, sample in trained_samples(partial):
        rewards.setdefault((step, sample["group_index"]), set()).add(sample["reward"])
    assert len(rewards) == ROLLOUTS * BATCH
    assert all(len(values) == 2 for values in rewards.values())


def test_every_prompt_has_one_fate_or_waits(partial):
    fates = ledger(partial)
    assert sorted(fates) == list(range(len(fates)))
    trained = 0
    for records in fates.values():
        words = [record["fate"] for record in records]
        assert words[0] == "dispatched"
        assert all(word in ("dispatched", "partial") for word in words[:-1])
        assert words[-1] in ("trained", "filtered", "partial")
        trained += words[-1] == "trained"
    assert trained == ROLLOUTS * BATCH


def test_surplus_groups_are_handed_back_and_trained_later(partial):
    words = [[record["fate"] for record in records] for records in ledger(partial).values()]
    assert sum("partial" in fates and fates[-1] == "trained" for fates in words) >= BATCH


def test_partial_tokens_keep_the_version_that_made_them(partial):
    continued = 0
    for step, sample in trained_samples(partial):
        runs = sample["weight_versions"]
        versions = [version for version, _ in runs]
        assert versions == sorted(set(versions)), "one run for each version, in order"
        assert versions[-1] <= step
        assert sum(count for _, count in runs) == sample["response_length"]
        assert sample["loss_mask"] is None
        continued += len(runs) > 1
    assert continued > 0


def test_older_tokens_are_masked_when_asked_for(work):
    run_dir = work / "masked"
    done = run_slime(forms_command(work, run_dir, extra=["--mask-offpolicy-in-partial-rollout"]))
    assert done.returncode == 0, done.stdout + done.stderr
    masked = 0
    for step, sample in trained_samples(run_dir):
        mask = [int(version == step) for version, count in sample["weight_versions"] for _ in range(count)]
        masked += 0 in mask and 1 in mask
        assert (sample["loss_mask"] or [1] * len(mask)) == mask
    assert masked > 0, "no sample has both"


def test_without_partial_rollout_a_prompt_that_was_handed_back_starts_anew(work):
    run_dir = work / "not-partial"
    command = forms_command(work, run_dir)
    command.remove("--partial-rollout")
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    for step, sample in trained_samples(run_dir):
        assert sample["weight_versions"] == [[step, sample["response_length"]]]
    words = [[record["fate"] for record in records] for records in ledger(run_dir).values()]
    assert any("partial" in fates and fates[-1] == "trained" for fates in words)


def test_groups_that_wait_in_a_checkpoint_go_on_as_if_nothing_had_happened(work, partial):
    run_dir = work / "continued"
    assert run_slime(forms_command(work, run_dir, rollouts=3)).returncode == 0
    done = run_slime(forms_command(work, run_dir))
    assert done.returncode == 0, done.stdout + done.stderr
    assert weights(run_dir) == weights(partial)


def test_a_run_goes_on_with_a_limit_below_what_its_partial_samples_have(work):
    run_dir = work / "lowered"
    assert run_slime(forms_command(work, run_dir, rollouts=3)).returncode == 0
    lowered = forms_command(work, run_dir, rollouts=5)
    lowered[lowered.index("--rollout-max-response-len") + 1] = "2"
    done = run_slime(lowered)
    assert done.returncode == 0, done.stdout + done.stderr
    resumed = [sample for step, sample in trained_samples(run_dir) if step >= 3]
    longer = [sample for sample in resumed if sample["response_length"] > 2]
    unfinished = [sample for sample in longer if sample["status"] == "truncated" and sample["response_length"] < 40]
    assert unfinished, "no unfinished sample had more tokens than the new limit"
    for sample in longer:
        assert sample["status"] in ("truncated", "completed")
        assert all(version < 3 for version, _ in sample["weight_versions"])


class Judge(http.server.ThreadingHTTPServer):
    """Answers 0 and 1 in turn; `is_slow` decides from the request who has to wait until the end of the test."""

    daemon_threads = True

    def __init__(self, is_slow):
        self.is_slow, self.asked, self.kept_waiting, self.released = is_slow, 0, 0, threading.Event()
        super().__init__(("127.0.0.1", 0), JudgeAnswer)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/score"

    def close(self):
        self.released.set()
        self.shutdown()
        self.server_close()


class JudgeAnswer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked += 1
        if self.server.is_slow(asked):
            self.server.kept_waiting += 1
            self.server.released.wait(250)
        self.send_response(200)
        self.send_header("Content-Length", "1")
        self.end_headers()
        self.wfile.write(b"%d" % (self.server.asked % 2))

    def log_message(self, *_):
        pass


def test_a_step_that_has_its_groups_does_not_wait_for_a_judge(work):
    """All responses have six tokens, so the first four of eight groups are kept; the judge never answers for the others."""
    rows = [{"prompt": f"{n}+1=", "label": "slow" if n >= 14 else "quick"} for n in range(10, 18)]
    data = work / "judged.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    judge = Judge(lambda asked: asked["label"] == "slow")
    run_dir = work / "judged"
    command = train_command(work, run_dir, rollouts=1, extra=["--over-sampling-batch-size", "8", "--rm-url", judge.url])
    command.remove("--rollout-shuffle")
    command[command.index("--rm-type") + 1] = "remote_rm"
    command[command.index("--prompt-data") + 1] = str(data)
    begin = time.monotonic()
    done = run_slime(command)
    seconds = time.monotonic() - begin
    judge.close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert judge.kept_waiting > 0, "nobody had to wait"
    assert seconds < 60
    trained = {ordinal for ordinal, fates in ledger(run_dir).items() if fates[-1]["fate"] == "trained"}
    assert trained == {0, 1, 2, 3}


def evaluation_command(work, run_dir, extra=()):
    """Two prompts of twenty fit the context; their reward is 1 whatever the response."""
    sure = {"instruction_id_list": ["change_case:capital_word_frequency"]}
    sure["kwargs"] = [{"capital_frequency": 1000, "capital_relation": "less than"}]
    rows = [{"prompt": "1+1=" if n < 2 else "1+" * (300 + n), "label": "", "metadata": sure} for n in range(20)]
    data = work / "long_prompts.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = work / "long_prompts.yaml"
    config.write_text(f"eval:\n  datasets:\n    - {{name: long, path: '{data}', rm_type: ifbench}}\n")
    more = ["--eval-config", str(config), "--eval-interval", "1", "--log-passrate", *extra]
    return train_command(work, run_dir, rollouts=1, extra=more)


def scores(run_dir, name):
    return [row[name] for row in metric_rows(run_dir) if name in row]


def test_samples_that_fail_in_an_evaluation_count_zero_and_are_shown(work):
    run_dir = work / "failed-count"
    done = run_slime(evaluation_command(work, run_dir, ["--n-samples-per-eval-prompt", "2"]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert scores(run_dir, "eval/long") == [0.1, 0.1]
    assert scores(run_dir, "eval/long-pass@1") == [0.1, 0.1]
    assert scores(run_dir, "eval/long-failed") == [36, 36]
    assert "evaluation long: 36 of 40 samples failed and count 0: 36x the prompt has" in done.stdout


def test_samples_that_fail_in_an_evaluation_are_left_out_on_request_and_shown(work):
    run_dir = work / "failed-left-out"
    done = run_slime(evaluation_command(work, run_dir, ["--eval-leave-out-failed"]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert scores(run_dir, "eval/long") == [1, 1]
    assert scores(run_dir, "eval/long-failed") == [18, 18]
    assert "18 of 20 samples failed and are left out (--eval-leave-out-failed)" in done.stdout


def test_evaluation_prompts_beyond_the_length_asked_for_are_counted(work):
    run_dir = work / "too-long"
    done = run_slime(evaluation_command(work, run_dir, ["--eval-max-prompt-len", "100"]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert scores(run_dir, "eval/long") == [1, 1]
    assert scores(run_dir, "eval/long-failed") == [0, 0]
    assert scores(run_dir, "eval/long-too_long") == [18, 18]
    assert "18 prompts are longer than --eval-max-prompt-len" in done.stdout

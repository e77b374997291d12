"""Users' functions around generation, in whole runs: what they do, what becomes of a run when they fail, and where every prompt went."""

import json
import shutil

import pytest
from conftest import SLIME, metric, run_slime, train_command

pytestmark = pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")


def hooked(work, run_dir, code, flags, *, rollouts=2, form="train"):
    """A run in whose folder of command own.py has `code`; a --custom-rm-path takes the place of the rule."""
    folder = work / f"{run_dir.name}-code"
    folder.mkdir()
    (folder / "own.py").write_text(code)
    command = train_command(work, run_dir, rollouts=rollouts, extra=flags)
    command[1] = form
    if "--custom-rm-path" in flags:
        at = command.index("--rm-type")
        del command[at : at + 2]
    return run_slime(command, cwd=folder)


def trained(done, run_dir, rollouts=2):
    """The run went well, and its ledger accounts for all prompts and tokens."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(metric(run_dir, "train/loss")) == rollouts
    audit = run_slime([str(SLIME), "ledger", str(run_dir), "--json"])
    assert audit.returncode == 0, audit.stdout + audit.stderr
    at = json.loads(audit.stdout)["checkpoint"]
    tokens, prompts = at["tokens"], at["prompts"]
    assert tokens["generated"] == sum(number for name, number in tokens.items() if name != "generated") > 0
    assert prompts["given_out"] == sum(number for name, number in prompts.items() if name != "given_out")


def fates(run_dir, fate):
    lines = (run_dir / "ledger.jsonl").read_text().splitlines()
    records = [json.loads(line.split(" ", 1)[1]) for line in lines]
    return [record for record in records if record.get("fate") == fate]


def samples(run_dir):
    return [json.loads(line) for file in sorted((run_dir / "rollouts").glob("*.jsonl")) for line in file.open()]


CONTRACTS = {
    "group": ("--custom-rm-path", "async def reward(args, samples, **kwargs):\n    {0}\n    return [1.0] * len(samples)\n", "reward"),
    "filter": ("--dynamic-sampling-filter-path", "def dynamic_filter(args, samples, **kwargs):\n    {0}\n    return True\n", "filter"),
    "hook": ("--rollout-sample-hook-path", "async def sample_hook(args, sample):\n    samples = [sample]\n    {0}\n", "sample hook"),
}
MISDEEDS = {
    "raise": ("raise ValueError('no such luck')", "ValueError: no such luck"),
    "type": ("return 'much'", {"group": "rewards of 4 samples are a list", "hook": "str is returned; it is a Sample or None"}),
    "late": ("import time; time.sleep(1000)", "took longer than 1 s"),
    "exit": ("import os; os._exit(3)", "ended with exit code 3"),
}


@pytest.mark.parametrize(
    "contract, misdeed",
    # What a filter returns is a truth value, whatever it is.
    [(contract, misdeed) for contract in CONTRACTS for misdeed in MISDEEDS if (contract, misdeed) != ("filter", "type")],
)
def test_a_misdeed_costs_its_own_prompt(work, contract, misdeed):
    flag, code, who = CONTRACTS[contract]
    statement, reason = MISDEEDS[misdeed]
    run_dir = work / f"misdeed-{contract}-{misdeed}"
    flags = [flag, "own.py", "--plugin-timeout-seconds", "1", *(["--group-rm"] if contract == "group" else [])]
    done = hooked(work, run_dir, code.format(f"if samples[0].index == 4: {statement}"), flags)
    trained(done, run_dir)
    failed = fates(run_dir, "failed")
    expected = reason if isinstance(reason, str) else reason[contract]
    assert [record["ordinal"] for record in failed] == [1]
    assert failed[0]["reason"].startswith(f"{who}: ") and expected in failed[0]["reason"]


def test_they_all_work_beside_a_stream_of_groups(work):
    code = (
        "async def reward(args, samples, **kwargs): return [float(each.metadata['seen'] + i) for i, each in enumerate(samples)]\n"
        "def dynamic_filter(args, samples, **kwargs): return samples[0].group_index % 3 > 0\n"
        "def sample_hook(args, sample, *, evaluation):\n    sample.metadata['seen'] = 10\n"
        "def sample_filter(args, groups): groups[0][0].remove_sample = True\n"
        "def process(args, all_groups, data_source): print('all', len(all_groups))\n"
    )
    run_dir = work / "hooks-of-a-stream"
    flags = ["--custom-rm-path", "own.py", "--group-rm", "--dynamic-sampling-filter-path", "own.py"]
    flags += ["--rollout-sample-hook-path", "own.py", "--rollout-sample-filter-path", "own.py:sample_filter"]
    flags += ["--rollout-all-samples-process-path", "own.py"]
    done = hooked(work, run_dir, code, flags, rollouts=4, form="train-async")
    trained(done, run_dir, 4)
    rows = samples(run_dir)
    assert {row["reward"] for row in rows} == {10, 11, 12, 13}
    assert all(row["group_index"] % 3 > 0 for row in rows) and sum(row["remove_sample"] for row in rows) == 4
    filtered = {record["ordinal"] for record in fates(run_dir, "filtered")}
    assert filtered and all(ordinal % 3 == 0 for ordinal in filtered)
    counts = [int(line.split()[1]) for line in (run_dir / "plugin" / "host-0.log").read_text().splitlines()]
    assert len(counts) == 4 and max(counts) > 4


def test_a_sample_hook_may_cut_and_add_tokens(work):
    code = (
        "def sample_hook(args, sample):\n"
        "    if sample.index % 2: sample.append_response_tokens(args, tokens=[5, 6], trainable=False, text='!')\n"
        "    elif sample.response_length > 1:\n"
        "        sample.tokens, sample.response_length = sample.tokens[:-1], sample.response_length - 1\n"
        "        sample.rollout_log_probs = sample.rollout_log_probs[:-1]\n"
    )
    run_dir = work / "tokens-of-a-hook"
    trained(hooked(work, run_dir, code, ["--rollout-sample-hook-path", "own.py"]), run_dir)
    odd = [row for row in samples(run_dir) if row["index"] % 2]
    assert all(row["tokens"][-2:] == [5, 6] and row["loss_mask"][-2:] == [0, 0] for row in odd) and len(odd) == 16


def test_what_a_buffer_filter_leaves_out_has_a_fate(work):
    code = (
        "def buffer_filter(args, rollout_id, buffer, num_samples):\n"
        "    print('waiting', len(buffer), rollout_id)\n"
        "    taken, buffer[:] = [buffer[0]], []\n"
        "    return taken\n"
    )
    run_dir = work / "buffer-filter"
    flags = ["--buffer-filter-path", "own.py", "--over-sampling-batch-size", "8", "--partial-rollout"]
    trained(hooked(work, run_dir, code, flags, rollouts=3), run_dir, 3)
    assert "waiting 4 None" in (run_dir / "plugin" / "host-0.log").read_text()
    filtered = fates(run_dir, "filtered")
    assert len(filtered) == 6 and {record["reason"] for record in filtered} == {"left out by the buffer filter"}


def test_beside_training_all_samples_may_ask_how_many_prompts_there_are(work):
    code = "def process(args, all_groups, data_source):\n    print('of', len(data_source), data_source.get_buffer_length())\n"
    run_dir, flags = work / "all-samples-beside", ["--rollout-all-samples-process-path", "own.py"]
    trained(hooked(work, run_dir, code, flags, form="train-async"), run_dir)
    assert (run_dir / "plugin" / "host-0.log").read_text().count("of 60 0") == 2

    taking = work / "all-samples-take-beside"
    done = hooked(work, taking, code + "    data_source.get_samples(1)\n", flags, form="train-async")
    assert done.returncode == 2 and "get_samples: under slime train-async prompts are the stream's" in done.stderr


def test_all_samples_may_take_prompts_and_give_them_back(work):
    code = (
        "def process(args, all_groups, data_source):\n"
        "    kept, lost = data_source.get_samples(2)\n"
        "    kept[0].metadata['mark'] = 7\n"
        "    data_source.add_samples([kept])\n"
        "    print('buffer', data_source.get_buffer_length(), 'of', len(data_source))\n"
        "    try:\n        data_source.add_samples([all_groups[0]])\n"
        "    except Exception as error: print(error)\n"
    )
    run_dir = work / "data-source-of-all-samples"
    trained(hooked(work, run_dir, code, ["--rollout-all-samples-process-path", "own.py"]), run_dir)
    written = (run_dir / "plugin" / "host-0.log").read_text()
    assert "buffer 1 of 60" in written and "group 0 was not taken by get_samples" in written
    assert {record["reason"] for record in fates(run_dir, "failed")} == {
        "taken by the function of --rollout-all-samples-process-path"
    }
    assert len(fates(run_dir, "failed")) == 2
    marked = [row for row in samples(run_dir) if row["metadata"].get("mark") == 7]
    assert [row["group_index"] for row in marked] == [4]


STEP_FLAGS = {
    "--rollout-sample-filter-path": "def sample_filter(args, groups): raise ValueError('no such luck')\n",
    "--rollout-all-samples-process-path": "def process(args, all_groups, data_source): raise ValueError('no such luck')\n",
}


@pytest.mark.parametrize("flag", STEP_FLAGS)
def test_a_step_that_a_function_could_not_see_is_not_trained(work, flag):
    run_dir = work / f"fails{flag}"
    done = hooked(work, run_dir, STEP_FLAGS[flag], [flag, "own.py"])
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{flag} own.py: ValueError: no such luck" in done.stderr and "Traceback" in done.stdout
    assert metric(run_dir, "train/loss") == [] if (run_dir / "metrics.jsonl").exists() else True


BATCH_FLAGS = {
    "--custom-reward-post-process-path": ("reward_post_process", "two lists are returned: raw rewards and rewards"),
    "--custom-convert-samples-to-train-data-path": ("convert", "the dictionary lacks tokens, response_lengths, rewards"),
}


@pytest.mark.parametrize("flag", BATCH_FLAGS)
def test_a_batch_that_a_function_could_not_make_is_not_trained(work, flag):
    name, reason = BATCH_FLAGS[flag]
    run_dir = work / f"fails{flag}"
    done = hooked(work, run_dir, f"def {name}(args, samples): return {{}}\n", [flag, "own.py"])
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{flag} own.py: " in done.stderr and reason in done.stderr


def test_a_batch_of_a_dump_is_made_by_the_same_functions(work, tmp_path):
    dump = str(tmp_path / "rollout_{rollout_id}.jsonl")
    done = run_slime(train_command(work, work / "dumped-for-functions", rollouts=1, extra=["--save-debug-rollout-data", dump]))
    assert done.returncode == 0, done.stdout + done.stderr
    code = "def reward_post_process(args, samples): return [5.0] * len(samples), [0.25] * len(samples)\n"
    flags = ["--custom-reward-post-process-path", "own.py", "--load-debug-rollout-data", dump]
    run_dir = work / "post-process-of-a-dump"
    done = hooked(work, run_dir, code, flags, rollouts=1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert metric(run_dir, "rollout/raw_reward") == [5] and metric(run_dir, "rollout/rewards") == [0.25]


def test_a_log_function_takes_the_place_of_the_programs(work):
    code = "def log_rollout(rollout_id, args, samples, rollout_extra_metrics, rollout_time):\n    return rollout_id == 1\n"
    run_dir = work / "own-log"
    done = hooked(work, run_dir, code, ["--custom-rollout-log-function-path", "own.py"])
    trained(done, run_dir)
    assert len(metric(run_dir, "rollout/response_len/mean")) == 1


def test_a_log_function_that_fails_is_told_and_the_program_logs(work):
    code = "def log_rollout(rollout_id, args, samples, rollout_extra_metrics, rollout_time):\n    raise ValueError('no such luck')\n"
    run_dir = work / "own-log-fails"
    done = hooked(work, run_dir, code, ["--custom-rollout-log-function-path", "own.py"])
    trained(done, run_dir)
    assert len(metric(run_dir, "rollout/response_len/mean")) == 2
    assert "--custom-rollout-log-function-path own.py: ValueError: no such luck" in done.stdout


def test_an_evaluation_set_has_a_reward_of_its_own(work):
    code = "def five(args, sample, **kwargs): return 5\n"
    config = work / "own-reward.yaml"
    sets = "".join(
        f"  - name: {name}\n    path: {work / 'data' / 'test.jsonl'}\n{more}"
        for name, more in (("own", "    custom_rm_path: own.py:five\n    rm_type: f1\n"), ("rule", "    rm_type: f1\n"))
    )
    config.write_text(f"datasets:\n{sets}")
    run_dir = work / "own-reward-of-a-set"
    done = hooked(work, run_dir, code, ["--eval-config", str(config), "--eval-interval", "1"])
    trained(done, run_dir)
    assert set(metric(run_dir, "eval/own")) == {5} and all(each <= 1 for each in metric(run_dir, "eval/rule"))
    done = hooked(work, work / "own-reward-missing", "", ["--eval-config", str(config), "--eval-interval", "1"])
    assert done.returncode == 2 and "own.py:five" in done.stderr


def test_everything_that_is_wrong_is_said_at_once_before_a_model_is_loaded(work):
    code = "def dynamic_filter(samples): return True\nclass sample_filter: pass\n"
    flags = ["--dynamic-sampling-filter-path", "own.py", "--rollout-sample-filter-path", "own.py:sample_filter"]
    run_dir = work / "several-wrong"
    done = hooked(work, run_dir, code, [*flags, "--buffer-filter-path", "own.nothing"])
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--dynamic-sampling-filter-path own.py: is called with (args, samples), but" in done.stderr
    assert "--rollout-sample-filter-path own.py:sample_filter: a function is wanted, this is a class" in done.stderr
    assert "--buffer-filter-path own.nothing: own has no nothing" in done.stderr
    assert not (run_dir / "metrics.jsonl").exists()


OF_SAMPLES = ["--custom-rm-path", "--dynamic-sampling-filter-path", "--rollout-sample-hook-path"]


@pytest.mark.parametrize("flag", OF_SAMPLES)
def test_a_schedule_of_rounds_does_not_wait_for_them(work, flag):
    run_dir = work / f"rounds{flag}"
    done = hooked(work, run_dir, "", [flag, "own.py", "--deterministic-schedule"], form="train-async")
    assert done.returncode == 2 and f"--deterministic-schedule and {flag}: rounds do not wait" in done.stderr

"""`slime eval`: the numbers of a run's evaluation, intervals, a second start, comparisons."""

import json
import os
import re
import signal
import subprocess
import time

import pytest
from conftest import SLIME, run_slime, train_command

LIMIT = 300


def eval_command(work, *words, samples=4):
    return [
        str(SLIME), "eval", str(work / "model"), "--input-key", "prompt", "--label-key", "label", "--apply-chat-template",
        "--rm-type", "random", "--max-tokens", "6", "--samples", str(samples), "--fp32", "--num-threads", "1", "--device", "cpu", *words,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def sets(work):
    """Two sets: 20 problems, and the first five of them."""
    return ["--data", f"all={work / 'data' / 'test.jsonl'}", f"few={work / 'data' / 'test.jsonl'}@[0:5]"]


@pytest.fixture(scope="module")
def result(work, sets):
    done = run_slime(eval_command(work, *sets, "--json"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_numbers_are_those_of_a_run(work, sets, result):
    """Sampled at temperature 1: the same tokens, so the same rewards."""
    run_dir = work / "run-of-eval"
    flags = ["--eval-prompt-data", *[word for each in sets[1:] for word in each.split("=", 1)]]
    flags += ["--eval-interval", "1", "--n-samples-per-eval-prompt", "4", "--log-passrate"]
    done = run_slime(train_command(work, run_dir, rollouts=1, extra=flags))
    assert done.returncode == 0, done.stderr
    first = next(json.loads(line) for line in (run_dir / "metrics.jsonl").open() if '"eval/all"' in line)
    for own in result["sets"]:
        name = own["name"]
        assert own["mean"]["value"] == first[f"eval/{name}"]
        assert own["mean_response_length"] == first[f"eval/{name}/response_len/mean"]
        assert own["truncated_ratio"] == first[f"eval/{name}-truncated_ratio"]
        for k in ("1", "2", "4"):
            assert own["pass_at_k"][k]["value"] == pytest.approx(first[f"eval/{name}-pass@{k}"], abs=1e-12)


@pytest.mark.parametrize("kind", ["weights", "adapter"])
def test_a_run_is_evaluated_as_it_evaluated_itself(work, tmp_path, kind):
    """After two steps: its newest checkpoint has the weights, or the adapter, of its last evaluation."""
    run_dir = tmp_path / "run"
    flags = ["--eval-prompt-data", "few", f"{work / 'data' / 'test.jsonl'}@[0:5]", "--eval-interval", "1"]
    flags += ["--n-samples-per-eval-prompt", "4", "--skip-eval-before-train"]
    if kind == "adapter":
        flags += ["--lora-rank", "4", "--lr", "1e-2"]
    done = run_slime(train_command(work, run_dir, rollouts=2, extra=flags))
    assert done.returncode == 0, done.stderr
    last = [json.loads(line) for line in (run_dir / "metrics.jsonl").open() if '"eval/few"' in line][-1]
    command = eval_command(work, "--data", f"few={work / 'data' / 'test.jsonl'}@[0:5]", "--json")
    command[2] = str(run_dir)
    done = run_slime(command)
    assert done.returncode == 0, done.stderr
    (few,) = json.loads(done.stdout)["sets"]
    assert few["mean"]["value"] == last["eval/few"]
    assert few["mean_response_length"] == last["eval/few/response_len/mean"]


def test_a_result_has_intervals_and_prompts(result):
    everything, few = result["sets"]
    assert [everything["num_prompts"], everything["num_samples"], few["num_prompts"]] == [20, 80, 5]
    for estimate in [everything["mean"], *everything["pass_at_k"].values()]:
        assert estimate["low"] <= estimate["value"] <= estimate["high"]
    assert [p["key"] for p in few["prompts"]] == [p["key"] for p in everything["prompts"][:5]]


def test_people_get_a_table(work, sets):
    command = eval_command(work, *sets, samples=1)
    command.append(command.pop(2))  # the model behind the flags
    done = run_slime(command)
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split()[:4] == ["set", "prompts", "samples", "mean"] and [row.split()[:2] for row in rows] == [["all", "20"], ["few", "5"]]


def test_a_second_start_goes_on(work, sets, result, tmp_path):
    """Killed in the middle; what was drawn is kept, and the numbers are those of an evaluation that nobody killed."""
    output = tmp_path / "samples.jsonl"
    command = eval_command(work, *sets, "--json", "--output", str(output))
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + LIMIT
    while process.poll() is None and not (output.exists() and output.read_text().count("\n") >= 8):
        assert time.monotonic() < end
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    lines = output.read_text().splitlines(keepends=True)
    kept = lines[: max(8, len(lines) // 8 * 4)]
    failed = json.loads(kept[0])
    failed["status"] = "failed"
    output.write_text(json.dumps(failed) + "\n" + "".join(kept[1:]) + '{"half a li')
    done = run_slime(command)
    assert done.returncode == 0, done.stderr
    assert f"{len(kept) // 4 - 1} of 25 prompts are from an earlier start" in done.stderr
    assert json.loads(done.stdout)["sets"] == result["sets"]
    assert len(output.read_text().splitlines()) == 100
    other = run_slime(eval_command(work, *sets, "--output", str(output), "--temperature", "0.5"))
    assert other.returncode == 2 and "--rollout-temperature was (default), is 0.5" in other.stderr, other.stderr
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text("mine\n")
    refused = run_slime(eval_command(work, *sets, "--output", str(foreign)))
    assert refused.returncode == 2 and "not of slime eval" in refused.stderr and foreign.read_text() == "mine\n"


def test_ctrl_c_says_how_to_go_on(work, sets, tmp_path):
    output = tmp_path / "samples.jsonl"
    command = eval_command(work, *sets, "--output", str(output), samples=64)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + LIMIT
    while process.poll() is None and not (output.exists() and output.read_text().count("\n") >= 8):
        assert time.monotonic() < end
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=LIMIT)
    assert process.returncode == 130 and "the same command goes on" in said


def test_results_are_compared_in_pairs(work, sets, result, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(result))
    better = json.loads(json.dumps(result))
    for prompt in better["sets"][0]["prompts"][:10]:
        prompt["mean"] += 0.5
    (tmp_path / "b.json").write_text(json.dumps(better))
    command = [str(SLIME), "eval", "--compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    done = run_slime([*command, "--json"])
    assert done.returncode == 0, done.stderr
    everything, few, both = json.loads(done.stdout)["sets"]
    assert (everything["num_pairs"], everything["num_better"], everything["num_worse"]) == (20, 10, 0)
    assert everything["difference"] == pytest.approx(0.25) and 0 < everything["low"] < 0.25 < everything["high"] < 0.5
    assert (few["difference"], few["low"], few["high"]) == (0, 0, 0)
    assert both["name"] == "all" and both["num_pairs"] == 25
    assert re.search(r"few .*may be chance: fewer than 6 pairs", run_slime(command).stdout)
    better["sets"][1]["name"] = "other"
    (tmp_path / "b.json").write_text(json.dumps(better))
    said = run_slime(command).stderr
    assert "few is left out: no prompt" in said and "other is left out" in said and "all is" not in said
    with open("/dev/full", "w") as full:
        lost = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
    assert lost.returncode == 1 and "standard output: No space left on device" in lost.stderr


def test_a_function_of_the_users_scores(work, sets, tmp_path):
    (tmp_path / "my_reward.py").write_text("async def reward(args, sample, **kwargs):\n    return 1.0 if sample.index % 4 else 0.0\n")
    command = eval_command(work, *sets, "--json", "--custom-rm-path", "my_reward.py")
    at = command.index("--rm-type")
    del command[at : at + 2]
    done = run_slime(command, cwd=tmp_path, env={**os.environ})
    assert done.returncode == 0, done.stderr
    everything = json.loads(done.stdout)["sets"][0]
    assert everything["mean"]["value"] == 0.75 and everything["pass_at_k"]["2"]["value"] == 1


def test_samples_that_all_failed_are_no_result(work, tmp_path):
    """Where one of eight has not failed, there is one."""
    for fails, num_failed, code in [("True", 8, 1), ("sample.index", 7, 0)]:
        (tmp_path / "my_rollout.py").write_text(
            "async def generate(args, sample, sampling_params, **kwargs):\n"
            "    sample.tokens, sample.response, sample.response_length = [1, 2], 'a', 1\n"
            f"    sample.status = type(sample).Status.FAILED if {fails} else type(sample).Status.COMPLETED\n"
            "    return sample\n"
        )
        few = ["--data", f"few={work / 'data' / 'test.jsonl'}@[0:2]", "--custom-generate-function-path", "my_rollout.generate"]
        done = run_slime(eval_command(work, *few, "--json"), cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert ("every sample failed" in done.stderr) == bool(code)
        assert json.loads(done.stdout)["sets"][0]["num_failed"] == num_failed


def test_samples_without_a_reward_are_refused(work, sets):
    command = eval_command(work, *sets)
    at = command.index("--rm-type")
    del command[at : at + 2]
    done = run_slime(command)
    assert done.returncode == 2 and "--rm-type: a reward is needed" in done.stderr and "row 1 of all" in done.stderr, done.stderr


def test_wrong_commands_are_refused(work, sets):
    for words, message in [
        (["--data", "x"], "NAME=FILE"),
        ([*sets, f"all={work}/x.jsonl"], "is the name of another set"),
        ([*sets, "--lr", "1e-3"], "unknown option --lr"),
        ([], "what should be evaluated is missing"),
        (["--data", f"x={work}/missing.jsonl"], "missing.jsonl"),
    ]:
        done = run_slime(eval_command(work, *words))
        assert done.returncode == 2 and message in done.stderr, done.stderr

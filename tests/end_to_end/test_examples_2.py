"""The examples with agents, on their own data, for a few steps each: turns happen, masks are right, rewards differ, every
prompt and token is accounted for."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT, SLIME, metric, run_slime

pytest.importorskip("transformers", reason="the examples' agents need transformers: tools/build/requirements/agents.txt")

EXAMPLES = ROOT / "examples"
CALL_WORDS = ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]


def make(example, folder, *, model=(), data=()):
    """data/ and model/ of an example, small."""
    paths = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    commands = [
        [EXAMPLES / example / "make_data.py", folder / "data", *data],
        [ROOT / "tools" / "tiny_model.py", folder / "model", *model],
    ]
    for command in commands:
        subprocess.run([sys.executable, *map(str, command)], check=True, stdout=subprocess.DEVNULL, env=paths)


def teach(folder, steps):
    """The supervised stage, short: the model keeps to the form."""
    done = run_slime([
        str(SLIME), "train", "--hf-checkpoint", str(folder / "model"), "--prompt-data", str(folder / "data" / "sft.jsonl"),
        "--input-key", "messages", "--rollout-shuffle", "--rollout-function-path", "slime.rollout.sft_rollout.generate_rollout",
        "--loss-type", "sft_loss", "--debug-train-only", "--calculate-per-token-loss", "--num-rollout", str(steps),
        "--rollout-batch-size", "64", "--global-batch-size", "64", "--use-dynamic-batch-size", "--max-tokens-per-gpu", "8192",
        "--lr", "3e-3", "--lr-decay-style", "constant", "--lr-warmup-iters", "20", "--fp32", "--device", "cpu", "--num-threads", "1",
        "--save-interval", "1000", "--run-dir", str(folder / "sft"),
    ])  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def command_of(folder, run_dir, function, *, steps=3, batch=8, extra=()):
    return [
        str(SLIME), "train", "--hf-checkpoint", str(folder / "sft" / "latest"), "--prompt-data", str(folder / "data" / "rl.jsonl"),
        "--input-key", "prompt", "--label-key", "label", "--rollout-shuffle", "--plugin-python", sys.executable,
        "--custom-generate-function-path", str(EXAMPLES / function), "--rollout-batch-size", str(batch),
        "--n-samples-per-prompt", "4", "--global-batch-size", str(4 * batch), "--rollout-max-response-len", "256",
        "--num-rollout", str(steps), "--use-dynamic-batch-size", "--max-tokens-per-gpu", "8192", "--lr", "1e-4",
        "--lr-decay-style", "constant", "--fp32", "--device", "cpu", "--num-threads", "1", "--save-interval", "1", "--run-dir", str(run_dir), *extra,
    ]  # fmt: skip


def train(folder, function, **options):
    """The samples of a run; whatever is true of all of them is asserted here."""
    steps, batch = options.setdefault("steps", 3), options.setdefault("batch", 8)
    run_dir = folder / "run"
    done = run_slime(command_of(folder, run_dir, function, **options))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(metric(run_dir, "train/loss")) == steps
    rows = rows_of(run_dir)
    check_masks(rows)
    check_ledger(run_dir, rows, steps * batch)
    return run_dir, rows


def rows_of(run_dir):
    return [json.loads(line) for file in sorted((run_dir / "rollouts").glob("step_*.jsonl")) for line in file.open()]


def check_masks(rows):
    for row in rows:
        mask, drawn = row["loss_mask"], row["rollout_log_probs"]
        assert len(mask) == len(drawn) == row["response_length"]
        versions = [version for version, count in row["weight_versions"] for _ in range(count)]
        for is_trained, log_prob, ours, version in zip(mask, drawn, row["train_log_probs"], versions):
            # What was told has no log-prob and no version; what was drawn is known to the trainer as it was to the engine.
            found = (row["index"], log_prob, ours, version)
            assert (log_prob <= 0 and version >= 0 and abs(log_prob - ours) < 1e-3) if is_trained else (log_prob, version) == (0, -1), found


def check_ledger(run_dir, rows, num_prompts):
    done = run_slime([str(SLIME), "ledger", str(run_dir), "--json"])
    assert done.returncode == 0, done.stdout + done.stderr
    at = json.loads(done.stdout)["checkpoint"]
    assert at["prompts"]["trained"] == num_prompts and at["prompts"].get("failed", 0) == 0
    assert at["tokens"]["trained"] == sum(row["response_length"] for row in rows)


def spans(mask):
    """How many times a turn of the policy begins."""
    return sum(now and not before for before, now in zip([0, *mask], mask))


@pytest.mark.nightly
def test_two_agents_play_and_a_game_is_one_execution(tmp_path):
    make("two_agents", tmp_path, data=["--games", "600"])
    teach(tmp_path, 200)
    _, rows = train(tmp_path, "two_agents/game.py", batch=16)  # some 14 of the games are won
    games = {}
    for row in rows:
        games.setdefault(row["rollout_id"], {})[row["metadata"]["agent"]] = row
    assert len(games) == 3 * 16 * 4 and all(set(game) <= {"guesser", "keeper"} for game in games.values())
    both = [game for game in games.values() if len(game) == 2]
    assert len(both) > len(games) / 2
    for game in both:
        guesser, keeper = game["guesser"], game["keeper"]
        assert guesser["reward"] == keeper["reward"] and guesser["index"] == keeper["index"]
        assert guesser["metadata"]["turns"] - keeper["metadata"]["turns"] in (0, 1)
        assert all(spans(each["loss_mask"]) <= each["metadata"]["turns"] + 1 for each in game.values())
        # Each sees what the other one said, and the secret is the keeper's alone.
        assert keeper["prompt"].startswith(f"<|im_start|>system\n{keeper['label']}<|im_end|>")
        # (A policy of 200 steps may well draw the word "system" itself, so the turn is looked for, not the word.)
        assert "<|im_start|>system" not in guesser["prompt"] + guesser["response"]
    assert max(row["metadata"]["turns"] for row in rows) >= 4
    for game in games.values():
        guesser = game["guesser"]
        last_words = guesser["response"].split("<|im_start|>assistant\n")[-1]
        assert guesser["reward"] == float(last_words == f"={guesser['label']}<|im_end|>")
    assert {game["guesser"]["reward"] for game in games.values()} == {0, 1}


@pytest.mark.nightly
def test_a_dialogue_is_judged_by_the_database(tmp_path):
    make("dialogue", tmp_path, data=["--conversations", "600"])
    teach(tmp_path, 120)
    _, rows = train(tmp_path, "dialogue/serve.py")
    assert {row["reward"] for row in rows} == {0, 1}
    assert all(row["metadata"]["served"] for row in rows if row["reward"] == 1)
    asked = [row for row in rows if row["metadata"]["calls"] > 0]
    assert len(asked) > len(rows) / 2 and all("<|im_start|>tool\n" in row["response"] for row in asked)
    assert all(spans(row["loss_mask"]) == row["metadata"]["turns"] for row in rows if row["status"] == "completed")
    assert any("which?" in row["response"] for row in rows)


def has_sandbox():
    return run_slime([str(SLIME), "sandbox", "--check"]).returncode == 0


@pytest.mark.nightly
def test_a_coding_agent_of_the_openai_protocol_is_trained(tmp_path):
    pytest.importorskip("openai")
    if not has_sandbox():
        pytest.skip("no sandbox on this machine: slime sandbox --check")
    template = EXAMPLES / "coding_agent" / "chat_template.jinja"
    make("coding_agent", tmp_path, data=["--agents", "600", "--patient", "0.1"], model=["--words", *CALL_WORDS, "--chat-template", template])
    teach(tmp_path, 120)
    _, rows = train(tmp_path, "coding_agent/solve.py", steps=2, batch=4)
    assert {row["reward"] for row in rows} <= {0, 1}
    used = [row for row in rows if row["metadata"]["use_tool"] and row["metadata"]["calls"] >= 1]
    assert len(used) > len(rows) / 2
    # What a tool said is in the response, or before it: a call that the client repeats in other words is given up, and
    # what is trained begins behind it.
    words = importlib.import_module("transformers").AutoTokenizer.from_pretrained(tmp_path / "model")
    assert all("<|im_start|>tool\n" in words.decode(row["tokens"]) for row in used)
    told = [row for row in used if "<|im_start|>tool\n" in row["response"]]
    assert len(told) > len(rows) / 2
    assert all(row in told for row in used if spans(row["loss_mask"]) >= 2)
    tested = [row for row in used if "<|im_start|>tool\nf(" in row["response"] or "<|im_start|>tool\npass" in row["response"]]
    assert len(tested) > len(rows) / 4 and any("<|im_start|>tool\nok" in row["response"] for row in rows)
    assert any(spans(row["loss_mask"]) >= 3 for row in used)


LEVELS = ["--custom-rollout-log-function-path", str(EXAMPLES / "difficulty" / "rollout.py")]


def levels_of(run_dir):
    steps = json.loads((run_dir / "levels.json").read_text())["steps"]
    return {int(step): levels for step, levels in steps.items()}


def recounted(run_dir, folder):
    """The levels that the answers in a run's files lead to."""
    folder.mkdir()
    sys.path.insert(0, str(EXAMPLES / "difficulty"))
    try:
        levels = importlib.import_module("levels").Levels(folder)
    finally:
        sys.path.pop(0)
    for step, file in enumerate(sorted((run_dir / "rollouts").glob("step_*.jsonl"))):
        for row in map(json.loads, file.open()):
            levels.count(row["metadata"]["environment"], row["metadata"]["level"], row["reward"])
        levels.end_step(step)
    return levels.steps


@pytest.mark.nightly
def test_difficulty_follows_the_model_and_survives_a_kill(tmp_path):
    make("difficulty", tmp_path, data=["--answers", "3000", "--noise", "0"])
    teach(tmp_path, 250)
    run_dir = tmp_path / "run"
    steps, options = 30, {"steps": 30, "batch": 16, "extra": [*LEVELS, "--save-interval", "4"]}
    running = subprocess.Popen(command_of(tmp_path, run_dir, "difficulty/rollout.py", **options), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not ((run_dir / "levels.json").exists() and max(levels_of(run_dir)) >= 6):
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    last_checkpoint = int(os.readlink(run_dir / "latest")[-7:])
    before = levels_of(run_dir)
    assert last_checkpoint <= max(before)

    _, rows = train(tmp_path, "difficulty/rollout.py", **options)
    levels = levels_of(run_dir)
    assert sorted(levels) == list(range(steps))
    assert {step: levels[step] for step in range(last_checkpoint + 1)} == {step: before[step] for step in range(last_checkpoint + 1)}
    # No answer is lost, none counts twice, whatever the kill interrupted.
    assert levels == recounted(run_dir, tmp_path / "recount")
    assert max(each["level"] for each in levels[steps - 1].values()) > 1
    problems = {}
    for row in rows:
        problems.setdefault(row["group_index"], set()).add((row["metadata"]["level"], row["metadata"]["question"]))
    assert len(problems) == steps * 16 and all(len(of_one_prompt) == 1 for of_one_prompt in problems.values())

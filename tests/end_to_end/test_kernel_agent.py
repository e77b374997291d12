"""The kernel agent's conversations in short runs of an untrained model, whose answers have no code: turns, masks, contexts, flags."""

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT, run_slime, train_command

sys.path[:0] = [str(ROOT), str(ROOT / "python"), str(ROOT / "tests/http")]
from server_process import Program  # noqa: E402

PATHS = f"{ROOT}:{ROOT / 'python'}"
# Half of all bytes end an answer, so that many answers are whole.
ENDS = [str(byte) for byte in range(128)]
SAID = "no ```cpp block"
HEARD = f"\n<|im_start|>user\n{SAID}<|im_end|>\n<|im_start|>assistant\n"


def run(work, run_dir, *flags, ends=ENDS, rollouts=2, response=6):
    rows = [{"prompt": [{"role": "user", "content": "swish"}], "metadata": {"task": "swish", "is_brief": True}}] * 8
    data = run_dir.with_suffix(".jsonl")
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    generate = [
        "--custom-generate-function-path",
        "examples.kernel_agent.kernel_agent.generate",
        "--metadata-key",
        "metadata",
    ]
    command = train_command(
        work, run_dir, rollouts=rollouts, extra=[*generate, "--rollout-stop-token-ids", *ends, *flags]
    )
    for flag in ("--rm-type", "--label-key"):
        at = command.index(flag)
        del command[at : at + 2]
    command.remove("--apply-chat-template")
    command[command.index("--prompt-data") + 1] = str(data)
    command[command.index("--rollout-max-response-len") + 1] = str(response)
    return run_slime(command, env=os.environ | {"PYTHONPATH": PATHS})


def samples(done, run_dir):
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return [json.loads(line) for file in sorted((run_dir / "rollouts").glob("*.jsonl")) for line in file.open()]


MARKS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "system",
    "user",
    "assistant",
    "\\boxed{",
]  # the tiny model's tokens from 256


def text(tokens):
    return b"".join(bytes([token]) if token < 256 else MARKS[token - 256].encode() for token in tokens).decode(
        errors="replace"
    )


def heard(sample):
    """What is not trained of a response."""
    response = sample["tokens"][-sample["response_length"] :]
    mask = sample["loss_mask"] or [1] * len(response)
    return text(token for token, trained in zip(response, mask, strict=True) if not trained)


def test_there_are_as_many_turns_as_max_turns_says_and_each_is_trained(work, tmp_path):
    drawn = samples(run(work, tmp_path / "run", "--max-turns", "3"), tmp_path / "run")
    counts = [len(sample["metadata"]["turns"]) for sample in drawn]
    assert set(counts) <= {1, 2, 3} and 3 in counts
    for sample, count in zip(drawn, counts):
        said = [turn["feedback"] for turn in sample["metadata"]["turns"]]
        assert said[:-1] == [SAID] * (count - 1) and said[-1] in (SAID, "cut off")
        # An answer that a byte ended is closed by the template.
        assert re.fullmatch(rf"(?:(?:<\|im_end\|>)?{re.escape(HEARD)}){{{count - 1}}}", heard(sample))
        assert (sample["status"] == "truncated") == (said[-1] == "cut off")
        for mask, ours, theirs in zip(
            sample["loss_mask"] or [1] * sample["response_length"],
            sample["train_log_probs"],
            sample["rollout_log_probs"],
            strict=True,
        ):
            assert not mask or abs(ours - theirs) < 1e-3


@pytest.mark.parametrize("flags", [["--single-turn"], ["--max-turns", "1"]])
def test_a_single_turn(work, tmp_path, flags):
    drawn = samples(run(work, tmp_path / "run", *flags, rollouts=1), tmp_path / "run")
    assert {len(sample["metadata"]["turns"]) for sample in drawn} == {1} and not any(heard(sample) for sample in drawn)


def test_a_config_file_names_the_turns(work, tmp_path):
    (tmp_path / "agent.yaml").write_text("max_turns: 2\nturn_reward: last\n")
    drawn = samples(
        run(work, tmp_path / "run", "--custom-config-path", str(tmp_path / "agent.yaml"), rollouts=1), tmp_path / "run"
    )
    assert max(len(sample["metadata"]["turns"]) for sample in drawn) == 2


def test_a_full_context_goes_on_with_the_last_attempt_in_a_sample_of_its_own(work, tmp_path):
    # The question and its frame are 13 tokens, an answer 1 to 6 and what is said to it 24 or 25: two of those do not fit.
    flags = ["--max-turns", "4", "--rollout-max-context-len", "60"]
    drawn = samples(run(work, tmp_path / "run", *flags), tmp_path / "run")
    executions = {}
    for sample in drawn:
        executions.setdefault((sample["group_index"], sample["rollout_id"]), []).append(sample)
    forked = [each for each in executions.values() if len(each) > 1]
    assert forked and max(len(each[0]["metadata"]["turns"]) for each in executions.values()) == 4
    for each in executions.values():
        assert all(len(sample["tokens"]) <= 60 for sample in each)
        assert len({json.dumps(sample["metadata"]["turns"]) for sample in each}) == 1
        assert len({sample["reward"] for sample in each}) == 1


def test_a_flag_that_makes_no_sense_ends_the_run_with_what_would(work, tmp_path):
    done = run(work, tmp_path / "run", "--max-turns", "0")
    assert done.returncode != 0 and "--max-turns 0: should be a whole number from 1 on" in done.stdout + done.stderr


@pytest.mark.parametrize("flags, shared", [(["--single-turn"], []), (["--max-turns", "2", "--seed", "7"], ["--seed", "7"])])
def test_the_supervised_stage_of_the_script_gets_no_flag_of_the_agent(tmp_path, flags, shared):
    stub = tmp_path / "slime"  # notes its words, and makes the run's folder
    stub.write_text(f"""#!/bin/bash
echo "$@" >>"{tmp_path}/words"
while (($#)); do [[ $1 != --run-dir ]] || mkdir -p "$2"; shift; done
""")
    stub.chmod(0o755)
    environment = os.environ | {"SLIME_BINARY": str(stub), "DATA": str(tmp_path / "data"), "RUNS": str(tmp_path / "runs")}
    script = ROOT / "examples" / "kernel_agent" / "run.sh"
    done = subprocess.run([script, *flags], env=environment | {"DATA_FLAGS": "--tasks swish --conversations 20"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    imitated, reinforced, *_ = [line.split() for line in (tmp_path / "words").read_text().splitlines()]
    assert "sft_loss" in imitated and imitated[len(imitated) - len(shared) :] == shared and flags[0] not in imitated
    assert flags[0] in reinforced and reinforced[len(reinforced) - len(shared) :] == shared


def test_a_served_model_holds_the_same_conversation(tmp_path):
    make_model = [sys.executable, ROOT / "tools" / "tiny_model.py", tmp_path / "model", "--positions", "1024"]
    subprocess.run(make_model, check=True, stdout=subprocess.DEVNULL)
    server = Program("serve", "--model", str(tmp_path / "model"), "--port", "0", "--device", "cpu")
    try:
        solve = [
            sys.executable,
            str(ROOT / "examples" / "kernel_agent" / "solve.py"),
            "--url",
            server.url,
            "--brief",
            "--json",
        ]
        environment = os.environ | {"PYTHONPATH": PATHS}
        command = [*solve, "--task", "swish", "sum_rows", "--max-turns", "2", "--max-tokens", "6"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert [(row["task"], row["level"], row["score"]) for row in rows] == [("swish", 1, 0.0), ("sum_rows", 1, 0.0)]
        for row in rows:
            assert 1 <= len(row["turns"]) <= 2 and row["turns"][-1]["feedback"] in (SAID, "cut off")
        done = subprocess.run([*solve, "--task", "swich"], env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2 and "there is no task swich; near it: swish" in done.stderr
    finally:
        server.stop()

"""`slime train ... --dry-run`: launchers and published argument lists are checked to the end on a machine without checkpoints,
and train.py does what those who read about it type."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, SLIME, metric, run_slime, train_command

MODELS = sorted(path.stem for path in (ROOT / "scripts" / "models").glob("*.sh"))
LAUNCHERS = sorted(path.name for path in (ROOT / "scripts").glob("run-*.sh"))
OF_ONE_MODEL = {"run-qwen3-4B-amd.sh"}  # take no model
FIXTURE = ROOT / "tests" / "fixtures" / "flags" / "launch_scripts.txt"
# What a run refuses so far; each with a sentence that says what to do instead.
REFUSED = {
    "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size", "--expert-model-parallel-size",
    "--actor-num-nodes", "--multimodal-keys", "--enable-mtp-training", "--fp8-format", "--fp8-recipe", "--sglang-config",
    "--rollout-max-response-len",
}  # fmt: skip
WHAT_TO_DO = re.compile(r"\b(use|leave|give|add|needs|should be|choose one)\b")


def launched(script, model, *flags):
    environment = {**os.environ, "SLIME_BINARY": str(SLIME), "GENERATE": "draw.py", "REWARD": "score.py"}
    return subprocess.run(
        ["bash", ROOT / "scripts" / script, model, *flags], capture_output=True, text=True, timeout=120, env=environment
    )


def listed():
    """The argument lists of the fixture, by name."""
    lists, name = {}, None
    for line in FIXTURE.read_text().splitlines():
        if match := re.fullmatch(r"\[(.*)\]", line):
            name = match[1]
            lists[name] = []
        elif not line.startswith("#"):
            lists.setdefault(name, []).extend(line.split())
    lists.pop(None, None)
    return lists


def refusals(text):
    part = text.partition("A run would refuse:\n")[2].partition("\n\n")[0]
    return [line.strip() for line in part.splitlines() if line.strip()]


@pytest.mark.parametrize("script", LAUNCHERS)
def test_a_launcher_passes_on_a_machine_without_models(script, tmp_path):
    model = [] if script in OF_ONE_MODEL else ["qwen3-4B"]
    done = launched(script, *model, "--run-dir", str(tmp_path / "run"), "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "A run would begin where these paths are" in done.stdout and "--hf-checkpoint" in done.stdout
    assert "unknown flag" not in done.stdout or "for functions of the user's" in done.stdout
    assert "has no effect" not in done.stdout
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("model", MODELS)
def test_every_model_file_is_taken(model):
    done = launched("run-grpo.sh", model, "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 notes" in done.stdout


def test_flags_behind_the_model_win_and_another_model_is_no_model():
    assert refusals(launched("run-grpo.sh", "qwen3-4B", "--dry-run").stdout) == []
    assert refusals(launched("run-grpo.sh", "qwen3-4B", "--adam-beta1", "2", "--dry-run").stdout) == ["--adam-beta1: should be in [0, 1)"]
    unknown = launched("run-grpo.sh", "qwen17", "--dry-run")
    assert unknown.returncode == 2 and "qwen3-4B" in unknown.stderr


@pytest.mark.parametrize("name", listed())
def test_a_published_list_is_checked_to_the_end(name):
    done = run_slime([str(SLIME), "train", *listed()[name], "--dry-run"], cwd=ROOT)
    assert done.returncode in (0, 2), done.stderr
    assert "Nothing was loaded or written" in done.stdout, done.stdout + done.stderr
    found = refusals(done.stdout)
    assert (done.returncode == 0) == (not found)
    assert {line.split(":")[0].split(" ")[0] for line in found} <= REFUSED
    assert all(WHAT_TO_DO.search(line) for line in found), found


def test_a_script_of_another_model_is_found_where_the_model_is_there(work):
    command = train_command(work, work / "dry", extra=["--num-layers", "99", "--dry-run"])
    done = run_slime(command)
    assert done.returncode == 2
    assert any(line.startswith("--num-layers 99: config.json") for line in refusals(done.stdout))
    assert not (work / "dry").exists()


def test_what_a_run_would_find_before_its_first_token_is_found(work, tmp_path):
    """A row that cannot be read, a function that is not there, weights of another shape: each refused by both, in the same words."""
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1 + 1", "label": "2"}\n{"question": "1 + 2", "label": "3"}\n')
    (tmp_path / "mine.py").write_text("def score(args, sample):\n    return 1.0\n")
    shutil.copytree(work / "model", tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["intermediate_size"] *= 2
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    shutil.copytree(work / "model", tmp_path / "other")
    tokenizer = json.loads((tmp_path / "other" / "tokenizer.json").read_text())
    ids = tokenizer["model"]["vocab"]
    ids["a"], ids["b"] = ids["b"], ids["a"]
    (tmp_path / "other" / "tokenizer.json").write_text(json.dumps(tokenizer))
    for extra, words in (
        (["--ref-load", str(tmp_path / "other"), "--use-kl-loss", "--kl-loss-coef", "0.1"], "has another vocabulary"),
        (["--use-opd", "--opd-type", "megatron", "--opd-teacher-load", str(tmp_path / "model")], "mlp."),
        (["--prompt-data", str(tmp_path / "rows.jsonl")], "rows.jsonl"),
        (["--custom-rm-path", "mine.scores"], "mine has no scores; it has score"),
        (["--hf-checkpoint", str(tmp_path / "model")], "mlp."),
        (["--lr-decay-style", "WSD", "--lr-wsd-decay-iters", "100"], "lr-wsd-decay-iters"),
    ):
        command = train_command(work, tmp_path / "run", extra=extra)
        if "--prompt-data" in extra:
            at = command.index("--prompt-data")
            del command[at : at + 2]  # given twice they add up
        dry = run_slime([*command, "--dry-run"], cwd=tmp_path)
        assert dry.returncode == 2 and any(words in line for line in refusals(dry.stdout)), dry.stdout + dry.stderr
        assert not (tmp_path / "run").exists()
        run = run_slime(command, cwd=tmp_path)
        assert run.returncode == 2 and words in run.stderr, run.stdout + run.stderr
        shutil.rmtree(tmp_path / "run", ignore_errors=True)


def test_a_reference_that_is_elsewhere_is_noted_and_not_refused(work, tmp_path):
    extra = ["--use-kl-loss", "--kl-loss-coef", "0.01", "--ref-load", str(tmp_path / "none"), "--dry-run"]
    done = run_slime(train_command(work, tmp_path / "run", extra=extra))
    assert done.returncode == 0 and "0 refusals" in done.stdout, done.stdout
    assert done.stdout.count("no such directory; without it the reference is --hf-checkpoint") == 1


def test_what_nothing_reads_is_told_when_the_run_begins_and_ends(work, tmp_path):
    done = run_slime(train_command(work, tmp_path / "run", rollouts=1, extra=["--gamma", "0.9"]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--gamma has no effect: nothing in this run reads it" in done.stdout + done.stderr
    assert done.stderr.splitlines()[-1] == "--gamma had no effect in this run: nothing read it"
    assert done.stderr.splitlines()[0].startswith("slime train: on the ")


def test_typos_in_commands_and_options_get_the_nearest_name(work):
    for words, meant in (
        (["tarin"], "did you mean slime train?"),
        (["generate", "--model", "x", "--randm-seed", "1"], "unknown option --randm-seed; did you mean --random-seed?"),
        (["score", "--rm-typ", "math", "x"], "unknown option --rm-typ; did you mean --rm-type?"),
        (["serve", "--modle", "x"], "unknown option --modle; did you mean --model?"),
        (["serve", "--model", "x", "--max-runing-requests", "4"], "did you mean --max-running-requests?"),
    ):
        done = run_slime([str(SLIME), *words])
        assert done.returncode == 2 and meant in done.stderr, done.stdout + done.stderr
    for command in ("train", "train-async", "serve", "generate", "score", "plan"):
        assert run_slime([str(SLIME), command, "-h"]).returncode == 0


def test_a_complete_command_would_begin(work):
    done = run_slime([*train_command(work, work / "dry"), "--dry-run"])
    assert done.returncode == 0 and "A run would begin. Nothing was loaded" in done.stdout
    assert not (work / "dry").exists()


def test_what_a_run_would_go_on_from_is_looked_at(work, tmp_path):
    command = train_command(work, tmp_path / "run", rollouts=1)
    assert run_slime(command).returncode == 0
    assert "is another experiment" in run_slime([*command, "--rm-type", "f1", "--dry-run"]).stdout
    more = run_slime([*command, "--num-rollout", "3", "--lr", "0.5", "--dry-run"])
    assert more.returncode == 0 and "settings that iter_0000000 was not written with" in more.stdout
    of_checkpoints = ["--ref-load", str(tmp_path / "run" / "checkpoints"), "--use-kl-loss", "--kl-loss-coef", "0.1"]
    for dry in (["--dry-run"], []):  # the newest of a folder is the reference
        done = run_slime([*train_command(work, tmp_path / "c", rollouts=1), *of_checkpoints, *dry])
        assert done.returncode == 0, done.stdout + done.stderr
    missing = run_slime([*train_command(work, tmp_path / "b"), "--load", str(tmp_path / "none"), "--dry-run"])
    assert "none: no such folder" in missing.stdout and not (tmp_path / "b").exists()


def test_supervised_training_by_train_async_is_that_of_train():
    done = launched("run-sft.sh", "qwen3-4B", "--train-async", "--dry-run")
    assert done.returncode == 0 and "the run is that of slime train" in done.stdout


GENERATE = """
async def generate(args, sample, sampling_params):
    from slime.utils.http_utils import post

    assert args.max_turns == 3
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    prompt = list(sample.prompt.encode())  # a token for each byte
    tokens, mask = list(prompt), []
    for turn in range(args.max_turns):
        answer = await post(url, {"input_ids": tokens, "sampling_params": {**sampling_params, "max_new_tokens": 2}})
        tokens += answer["output_ids"] + [10]
        mask += [1] * len(answer["output_ids"]) + [0]
    sample.tokens, sample.response_length, sample.loss_mask = tokens, len(mask), mask
    sample.metadata["turns"] = args.max_turns
    sample.status = sample.Status.COMPLETED
    return sample
"""


def seed_command(work, run_dir, program, *extra):
    """What a reader types: python3 train.py, with files for functions."""
    command = train_command(work, run_dir, rollouts=2)
    at = command.index("--rm-type")
    del command[at : at + 2]
    return [sys.executable, str(ROOT / program), *command[2:], *extra]


@pytest.mark.parametrize("program", ["train.py", "train_async.py"])
def test_train_py_with_files_and_max_turns_trains(work, tmp_path, program):
    (tmp_path / "generate.py").write_text(GENERATE)
    (tmp_path / "reward.py").write_text("async def reward(args, sample, **kwargs):\n    return float(sample.metadata['turns'])\n")
    run_dir = tmp_path / "run"
    command = seed_command(
        work, run_dir, program, "--custom-generate-function-path", "generate.py", "--custom-rm-path", "reward.py", "--max-turns", "3"
    )
    done = run_slime(command, cwd=tmp_path, env={**os.environ, "SLIME_BINARY": str(SLIME)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert metric(run_dir, "rollout/raw_reward") == [3, 3]
    assert "--max-turns is for functions of the user's, as an attribute of `args`" in done.stdout + done.stderr


def test_max_turns_without_a_function_says_what_to_add(work, tmp_path):
    command = train_command(work, tmp_path / "run", extra=["--max-turns", "3", "--dry-run"])
    assert "--custom-generate-function-path FILE.py" in run_slime(command).stdout


def test_a_reward_that_is_missing_is_said_in_a_sentence(work, tmp_path):
    done = run_slime(seed_command(work, tmp_path / "run", "train.py", "--dry-run"), env={**os.environ, "SLIME_BINARY": str(SLIME)})
    assert done.returncode == 2 and any("--custom-rm-path" in line for line in refusals(done.stdout))


def test_a_reward_that_does_not_exist_is_said_by_both(work, tmp_path):
    for extra in ([], ["--dry-run"]):
        command = train_command(work, tmp_path / "run", extra=["--rm-type", "maths", *extra])
        done = run_slime(command)
        assert done.returncode == 2 and (done.stdout + done.stderr).count("--rm-type maths: unknown; there are dapo") == 1


def test_workflow_lists_of_bash_reach_the_run(work, tmp_path):
    """Arrays, as published scripts have them, pasted behind train.py."""
    command = train_command(work, tmp_path / "run", rollouts=1)[2:]
    half = len(command) // 2
    while not command[half].startswith("--"):
        half += 1
    script = tmp_path / "run.sh"
    quoted = [" ".join(f'"{word}"' for word in part) for part in (command[:half], command[half:])]
    script.write_text(
        f"CKPT_ARGS=({quoted[0]})\nROLLOUT_ARGS=(\n   {quoted[1]}\n   # --use-wandb\n)\n"
        f"python3 {ROOT / 'train.py'} ${{CKPT_ARGS[@]}} ${{ROLLOUT_ARGS[@]}} ${{WANDB_ARGS[@]}}\n"
    )
    done = run_slime(["bash", str(script)], env={**os.environ, "SLIME_BINARY": str(SLIME)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(metric(tmp_path / "run", "train/loss")) == 1
    assert json.loads((Path(tmp_path) / "run" / "run.json").read_text())


def test_a_plan_proposes_engines_of_codes_that_a_run_takes(tmp_path):
    shape = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64}
    config = json.loads((ROOT / "tests" / "fixtures" / "models" / "qwen3" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **shape}))
    plan = [str(SLIME), "plan", "--hf-checkpoint", str(tmp_path), "--rollout-batch-size", "4", "--rollout-precision", "fp8"]
    apart = ["--actor-num-gpus-per-node", "1", "--rollout-num-gpus", "4"]
    no_room = ["--device-memory-gb", "1"]  # so many devices an engine as there can be
    for where in (apart, ["--actor-num-gpus-per-node", "4", "--colocate"]):
        done = run_slime([*plan, *where, *no_room])
        assert "of 2 devices each" in done.stdout and "of 1 or 2 devices an engine works" in done.stdout, done.stdout + done.stderr
        asked = run_slime([*plan, *where, "--rollout-num-gpus-per-engine", "4"])
        assert asked.returncode == 2 and "k_proj.weight: rows 0 to 64 of 256 cut" in asked.stderr, asked.stdout + asked.stderr
        assert "engines of 1 or 2 work" in asked.stderr
        assert run_slime([*plan, *where, "--rollout-num-gpus-per-engine", "2"]).returncode == 0
    plain = run_slime([*plan[:-2], *apart, *no_room])
    assert "of 4 devices each" in plain.stdout, plain.stdout + plain.stderr

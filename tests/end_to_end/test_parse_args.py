"""Scripts that begin with `parse_args` of slime.utils.arguments, as scripts for THUDM/slime do."""

import argparse
import copy
import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT, SLIME, metric, train_command
from slime.utils.arguments import get_slime_extra_args_provider

LAUNCHER = """
import sys
sys.path.insert(0, {root!r})
from slime.utils.arguments import parse_args
from train import train

def add_own(parser):
    parser.add_argument("--world-seed", type=str, default="007")
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 2])
    return parser

args = parse_args(add_custom_arguments=add_own)
assert args.world_seed == "007" and args.depths == [3, 4] and args.rollout_batch_size == 4 and args.lr == 1e-3
args.num_rollout = 1
args.greeting = {{"en": "hello"}}
train(args)
print("the script goes on", flush=True)
"""
REWARD = """
def reward(args, sample):
    assert args.world_seed == "007" and args.depths == [3, 4] and args.greeting == {"en": "hello"} and args.num_rollout == 1
    return float(len(sample.response) % 2)
"""
VALIDATION = "from slime.utils.arguments import parse_args; args = parse_args(); print('steps:', args.num_rollout, args.partial_rollout)"


def in_python(words, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SLIME_BINARY": str(SLIME)}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300, env=environment, **options)


def flags_of(command):
    return command[2:]  # behind "slime train"


def test_a_launcher_with_arguments_of_its_own_trains(work, tmp_path):
    (tmp_path / "launch.py").write_text(LAUNCHER.format(root=str(ROOT)))
    (tmp_path / "score.py").write_text(REWARD)
    flags = flags_of(train_command(work, tmp_path / "run", rollouts=2, extra=["--custom-rm-path", "score.py", "--depths", "3", "4"]))
    done = in_python(["launch.py", *flags], cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("the script goes on")
    assert len(metric(tmp_path / "run", "train/loss")) == 1  # --num-rollout 2, and 1 by the script


def test_own_values_join_those_of_a_file(work, tmp_path):
    (tmp_path / "launch.py").write_text(LAUNCHER.format(root=str(ROOT)).replace("train(args)", "train(args) if args.custom_config_path else 1"))
    (tmp_path / "score.py").write_text(REWARD.replace("args.num_rollout == 1", "args.of_the_file == 5"))
    (tmp_path / "own.json").write_text(json.dumps({"of_the_file": 5, "n_samples_per_prompt": 2, "global_batch_size": 8}))
    extra = ["--custom-rm-path", "score.py", "--depths", "3", "4", "--custom-config-path", "own.json"]
    done = in_python(["launch.py", *flags_of(train_command(work, tmp_path / "run", extra=extra))], cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {len(file.read_text().splitlines()) for file in (tmp_path / "run" / "rollouts").glob("*.jsonl")} == {8}


def test_a_line_of_shell_checks_a_command(work, tmp_path):
    flags = flags_of(train_command(work, tmp_path / "run", rollouts=3))
    done = in_python(["-c", VALIDATION, *flags, "--frobnicate"])
    assert done.returncode == 0 and done.stdout == "steps: 3 False\n", done.stdout + done.stderr
    assert "unknown flag --frobnicate" in done.stderr and not (tmp_path / "run").exists()
    done = in_python(["-c", VALIDATION, *flags, "--global-batch-size", "15"])
    assert done.returncode == 2 and "steps" not in done.stdout
    assert "slime: refused: --global-batch-size 15" in done.stderr


def test_what_does_not_reach_other_processes_is_refused(work, tmp_path):
    (tmp_path / "launch.py").write_text(LAUNCHER.format(root=str(ROOT)).replace('{"en": "hello"}', "object()"))
    flags = flags_of(train_command(work, tmp_path / "run", extra=["--rm-type", "random", "--depths", "3", "4"]))
    done = in_python(["launch.py", *flags], cwd=tmp_path)
    assert done.returncode == 1 and "cannot reach functions of other processes" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_parser_of_argparse_gets_all_flags(work, monkeypatch):
    monkeypatch.setenv("SLIME_BINARY", str(SLIME))
    own = argparse.ArgumentParser()
    own.add_argument("--lr", default="mine")
    parser = get_slime_extra_args_provider()(own)
    args = parser.parse_args(["--rollout-batch-size", "8", "--partial-rollout", "--eval-prompt-data", "a", "b"])
    assert (args.rollout_batch_size, args.partial_rollout, args.eval_prompt_data, args.lr) == (8, True, ["a", "b"], "mine")
    assert args.eps_clip == 0.2 and args.use_tis is False and args.num_rollout is None
    with pytest.raises(SystemExit):
        parser.parse_args(["--advantage-estimator", "nobody's"])
    assert copy.deepcopy(args) == args and parser.format_help()


def test_the_dry_run_for_programs_says_what_the_one_for_people_says(work, tmp_path):
    command = train_command(work, tmp_path / "run", extra=["--dry-run", "--prompt-data", "/nowhere.jsonl", "--global-batch-size", "15"])
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    found = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert told.returncode == found.returncode == 2
    said = json.loads(found.stdout)
    assert not said["begins"] and said["command"] == "slime train" and said["args"]["lr"] == 1e-3
    for sentence in (*said["notes"], *said["not_here"], *said["refusals"]):
        assert all(line.strip() in told.stdout for line in sentence.splitlines())
    kinds = [("notes", "note"), ("not_here", "path"), ("refusals", "refusal")]
    counts = [f"{len(said[key])} {noun}{'' if len(said[key]) == 1 else 's'}" for key, noun in kinds]
    assert f"{counts[0]}, {counts[1]} not here, {counts[2]}" in told.stdout


def test_what_the_program_does_itself_is_refused_by_name():
    with pytest.raises(ImportError, match="the program checks the flags"):
        from slime.utils.arguments import slime_validate_args  # noqa: F401

"""What users get wrong, and what the world does to a run: a clear message, exit code 2, nothing lost."""

import json
import os
import shutil
import struct
import subprocess
import time

import pytest
from conftest import SLIME, run_slime, train_command, weights
from golden_models import model_types


def read_safetensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def write_safetensors(path, header, data):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def remove_weights(model):
    (model / "model.safetensors").unlink()


def truncate_weights(model):
    file = model / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def transpose_the_embedding(model):
    header, data = read_safetensors(model / "model.safetensors")
    header["model.embed_tokens.weight"]["shape"].reverse()
    write_safetensors(model / "model.safetensors", header, data)


def add_a_tensor(model):
    header, data = read_safetensors(model / "model.safetensors")
    header["model.layers.0.extra.weight"] = {
        "dtype": "F32",
        "shape": [4],
        "data_offsets": [len(data), len(data) + 16],
    }
    write_safetensors(model / "model.safetensors", header, data + bytes(16))


def change_json(name, **fields):
    def change(model):
        content = json.loads((model / name).read_text())
        content.update(fields)
        (model / name).write_text(json.dumps(content))

    return change


def put_a_pipe_for(name):
    """Whoever opens it and waits never gets a byte."""

    def spoil(model):
        (model / name).unlink()
        os.mkfifo(model / name)

    return spoil


BOTTOMLESS = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (remove_weights, "holds neither model.safetensors nor"),
        (truncate_weights, "it is truncated"),
        (transpose_the_embedding, "model.embed_tokens.weight is [64, 263], config.json means [263, 64]"),
        (add_a_tensor, "model.layers.0.extra.weight belongs to no part of this model"),
        (change_json("config.json", model_type="mamba9"), f'model_type must be one of {", ".join(model_types())}, not "mamba9"'),
        (change_json("config.json", num_attention_heads=0), "num_attention_heads must be a whole number from 1 to 65536, not 0"),
        (change_json("tokenizer.json", pre_tokenizer={"type": "Sentencer"}), 'pre_tokenizer.type is "Sentencer"; known'),
        (change_json("tokenizer_config.json", chat_template=BOTTOMLESS), "line 1: chat template: the template nests deeper"),
        (change_json("tokenizer_config.json", chat_template=ENDLESS), "line 1: chat template: the template "),
        (change_json("tokenizer_config.json", chat_template="a\n{% for %}"), "chat template, line 2"),
        (put_a_pipe_for("model.safetensors"), "/model/model.safetensors: is a pipe, not a regular file"),
        (put_a_pipe_for("config.json"), "/model/config.json: is a pipe, not a regular file"),
        (put_a_pipe_for("tokenizer.json"), "/model/tokenizer.json: is a pipe, not a regular file"),
    ],
)
def test_a_model_that_cannot_work_is_refused_with_its_reason(work, tmp_path, spoil, says):
    shutil.copytree(work / "model", tmp_path / "model")
    spoil(tmp_path / "model")
    command = train_command(work, tmp_path / "run")
    command[command.index("--hf-checkpoint") + 1] = str(tmp_path / "model")
    done = run_slime(command)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr
    assert not (tmp_path / "run").exists(), "a run that is refused before it begins leaves no folder"


def test_a_prompt_longer_than_the_context_is_left_out_and_named(work, tmp_path):
    lines = (work / "data" / "rl.jsonl").read_text().splitlines()[:8]
    row = json.loads(lines[2])
    row["prompt"][0]["content"] *= 1000
    lines[2] = json.dumps(row)
    data = tmp_path / "long.jsonl"
    data.write_text("\n".join(lines) + "\n")
    command = train_command(work, tmp_path / "run", rollouts=2)
    command[command.index("--prompt-data") + 1] = str(data)
    done = run_slime(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is left out: the prompt has" in done.stdout + done.stderr
    assert '"fate":"failed"' in (tmp_path / "run" / "ledger.jsonl").read_text()


def run_on_small_disk(size, kept, small, command, **environment):
    """On a real file system of that size, mounted at `small` in a name space of its own; what is there at the end is copied to `kept`."""
    small.mkdir()
    script = f'mount -t tmpfs -o size={size} tmpfs "$1" && shift && {{ "$@"; status=$?; cp -a "{small}"/. "$0"; exit $status; }}'
    if subprocess.run(["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True).returncode != 0:
        pytest.skip("this kernel lets users mount nothing")
    kept.mkdir()
    return run_slime(["unshare", "-rm", "bash", "-c", script, kept, small, *command], env=os.environ | environment)


def test_on_a_full_disk_older_checkpoints_make_room(work, reference, tmp_path):
    """Three do not fit, of which the last is written before the first would be removed."""
    command = train_command(work, tmp_path / "small" / "run")
    done = run_on_small_disk("3800k", tmp_path / "kept", tmp_path / "small", command, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the disk is full; iter_0000000 removed for the next checkpoint" in done.stdout
    assert weights(tmp_path / "kept" / "run") == weights(reference)


def test_on_a_full_disk_a_checkpoint_without_room_is_kept_elsewhere(work, reference, tmp_path):
    """Two do not fit: the second is among temporary files, and moved among the others the run goes on from there."""
    run_dir, elsewhere = tmp_path / "kept" / "run", tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = train_command(work, tmp_path / "small" / "run")
    done = run_on_small_disk("2m", tmp_path / "kept", tmp_path / "small", command, TMPDIR=str(elsewhere))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "No space left on device" in done.stderr and "earlier checkpoints under" in done.stderr
    assert "The checkpoint of rollout step 1 is whole in" in done.stderr
    assert [path.name for path in (run_dir / "checkpoints").glob("*iter_*")] == ["iter_0000000"]
    (rescued,) = elsewhere.glob("slime-checkpoint-*/iter_0000001")
    shutil.move(rescued, run_dir / "checkpoints")
    done = run_slime(train_command(work, run_dir))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "continuing after rollout 1" in done.stdout
    assert weights(run_dir) == weights(reference)


def test_on_a_full_disk_metrics_and_ledger_are_finished_and_the_last_step_is_saved(work, tmp_path):
    """The run's own rollouts fill its folder; checkpoints are on another disk."""
    saved, kept = tmp_path / "saved", tmp_path / "kept"
    extra = ["--save", str(saved), "--save-interval", "10000"]
    command = train_command(work, tmp_path / "small" / "run", rollouts=300, extra=extra)
    done = run_on_small_disk("1m", kept, tmp_path / "small", command)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the disk is full; metrics and ledger are whole" in done.stderr
    rows = [json.loads(line) for line in (kept / "run" / "metrics.jsonl").open()]
    last = int(next(saved.glob("iter_*")).name.removeprefix("iter_"))
    assert [row["step"] for row in rows if "train/loss" in row] == list(range(last + 1))
    ledger = json.loads(run_slime([str(SLIME), "ledger", str(kept / "run"), "--json"]).stdout)
    assert ledger["checkpoint"]["step"] == last and ledger["checkpoint"]["prompts"]["trained"] == 4 * (last + 1)


def test_a_second_ctrl_c_stops_at_once_and_loses_nothing(work, reference, tmp_path):
    run_dir = tmp_path / "run"
    process = subprocess.Popen(train_command(work, run_dir), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not (run_dir / "latest").exists():
        time.sleep(0.02)
        assert process.poll() is None
    process.terminate()
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert run_slime(train_command(work, run_dir)).returncode == 0
    assert weights(run_dir) == weights(reference)


def supervised_command(work, run_dir, *extra):
    supervised = [
        "--input-key", "messages", "--loss-type", "sft_loss", "--debug-train-only", "--calculate-per-token-loss",
        "--rollout-function-path", "slime.rollout.sft_rollout.generate_rollout",
        "--n-samples-per-prompt", "1", "--global-batch-size", "4", *extra,
    ]  # fmt: skip
    command = train_command(work, run_dir, extra=supervised)
    command[command.index("--prompt-data") + 1] = str(work / "data" / "sft.jsonl")
    label = command.index("--label-key")
    del command[label : label + 2]
    return command


def test_rows_without_a_trained_token_end_the_run_with_the_reason(work, tmp_path):
    command = supervised_command(work, tmp_path / "run", "--input-key", "prompt")  # questions that nobody answers
    command[command.index("--prompt-data") + 1] = str(work / "data" / "rl.jsonl")
    done = run_slime(command)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "rl.jsonl: no row is left: 60 no_trained_token" in done.stderr


def test_streamed_rows_without_a_trained_token_end_the_run_after_one_pass(work, tmp_path):
    command = supervised_command(work, tmp_path / "run", "--input-key", "prompt", "--streaming-data")
    command[command.index("--prompt-data") + 1] = str(work / "data" / "rl.jsonl")
    command.remove("--rollout-shuffle")
    done = run_slime(command)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "none of the 60 rows has a token to train on" in done.stderr


def test_a_streamed_file_that_was_reordered_is_remarked_on_at_the_resume(work, tmp_path):
    lines = (work / "data" / "rl.jsonl").read_text().splitlines(keepends=True)
    data = tmp_path / "rl.jsonl"

    def resumed(rollouts, order):
        data.write_text("".join(order))
        command = train_command(work, tmp_path / "run", rollouts=rollouts, extra=["--streaming-data"])
        command.remove("--rollout-shuffle")
        command[command.index("--prompt-data") + 1] = str(data)
        done = run_slime(command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "the prompt data changed" not in resumed(2, lines)
    assert "the prompt data changed" not in resumed(4, lines)
    assert "the prompt data changed since the checkpoint (the first 16 rows" in resumed(6, lines[::-1])
    assert "the prompt data changed" not in resumed(8, lines[::-1])


def test_a_misspelt_flag_is_named_with_what_is_missing(work, tmp_path):
    command = train_command(work, tmp_path / "run")
    command[command.index("--prompt-data")] = "--promt-data"
    done = run_slime(command)
    assert done.returncode == 2
    assert "--prompt-data: missing; a file of rows" in done.stderr
    assert "unknown flag --promt-data; did you mean --prompt-data?" in done.stderr


def test_weights_that_blow_up_stop_the_run_with_the_batch_kept(work, tmp_path):
    run_dir = tmp_path / "run"
    command = supervised_command(work, run_dir, "--lr", "1e30")
    command.remove("--apply-chat-template")
    done = run_slime(command)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "training stopped after 4 steps in a row without finite gradients" in done.stderr
    assert "not updated: " in done.stdout  # with the tensors or the first sample that are not finite
    assert sorted(file.name for file in (run_dir / "skipped").iterdir()) == ["1.jsonl", "2.jsonl", "3.jsonl", "4.jsonl"]
    fates = [json.loads(line.split(" ", 1)[1]) for line in (run_dir / "ledger.jsonl").read_text().splitlines()]
    assert {fate["step"] for fate in fates if fate.get("fate") == "trained"} == {0}
    skipped = [fate for fate in fates if fate.get("fate") == "skipped"]
    assert {fate["step"] for fate in skipped} == {1, 2, 3, 4}
    assert all("not finite" in fate["reason"] or "is nan" in fate["reason"] for fate in skipped)


def test_a_run_continued_on_another_day_shows_templates_the_first(work, tmp_path):
    shutil.copytree(work / "model", tmp_path / "model")
    change_json(
        "tokenizer_config.json",
        chat_template="{{ strftime_now('%Y-%m-%d') }}{% for m in messages %}{{ m.content }}{% endfor %}",
    )(tmp_path / "model")
    run_dir = tmp_path / "run"
    # Two places whose calendars never agree: UTC+14 and UTC-12.
    for rollouts, zone in [(1, "EAST-14"), (2, "WEST+12")]:
        command = train_command(work, run_dir, rollouts=rollouts)
        command[command.index("--hf-checkpoint") + 1] = str(tmp_path / "model")
        done = run_slime(command, env={**os.environ, "TZ": zone})
        assert done.returncode == 0, done.stdout + done.stderr
    days = [
        json.loads(file.read_text().splitlines()[0])["prompt"][:10]
        for file in sorted((run_dir / "rollouts").glob("step_*.jsonl"))
    ]
    assert len(days) == 2
    assert days[0] == days[1]


def test_memory_does_not_grow(work, tmp_path):
    run_dir = tmp_path / "run"
    done = run_slime(train_command(work, run_dir, rollouts=200, extra=["--save-interval", "1000"]))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    resident = {row["step"]: row["perf/rss_bytes"] for row in rows}
    assert resident[199] < 1.05 * resident[19]

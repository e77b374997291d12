"""slime data: the rows of files in all forms, as a run would read them."""

import gzip
import json
import os

import pytest
from conftest import ROOT, SLIME, run_slime

GSM8K = [{"question": f"What is {i}+1?", "answer": f"It is {i + 1}.\n#### {i + 1}"} for i in range(20)]
CHATS = [{"conversations": [{"from": "human", "value": f"hi {i}"}, {"from": "gpt", "value": "yo"}]} for i in range(4)]


@pytest.fixture
def show(work):
    def run(*words, env=()):
        variables = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | dict(env)
        return run_slime([str(SLIME), "data", *map(str, words), "--hf-checkpoint", str(work / "model")], env=variables)

    return run


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_a_published_schema_is_told_and_its_first_rows_shown(show, tmp_path):
    (tmp_path / "train.jsonl").write_text(lines(GSM8K))
    result = show(tmp_path / "train.jsonl", "--apply-chat-template", "--rows", "2")
    assert result.returncode == 0, result.stderr
    assert "rows        20\n" in result.stdout
    assert "read as     GSM8K: question is the prompt" in result.stdout
    assert "What is 0+1?" in result.stdout and "label: 1\n" in result.stdout and "row 2" not in result.stdout
    assert "\033[" not in result.stdout


def test_what_is_trained_stands_in_brackets_and_what_is_left_out_is_counted(show, tmp_path):
    long = {"conversations": [{"from": "human", "value": "x" * 400}, {"from": "gpt", "value": "yo"}]}
    (tmp_path / "chats.json").write_text(json.dumps([*CHATS, long]))
    words = ["--loss-type", "sft_loss", "--rollout-max-context-len", "200"]
    result = show(tmp_path / "chats.json", *words)
    assert result.returncode == 0, result.stderr
    assert "[[yo" in result.stdout and "hi 0" in result.stdout
    assert "left out    1 longer_than_max_context_len" in result.stdout
    assert "trained" in result.stdout


def test_folders_patterns_and_packed_files_are_read_end_to_end(show, tmp_path):
    (tmp_path / "a.jsonl").write_text(lines(GSM8K[:5]))
    (tmp_path / "b.json").write_text(json.dumps(GSM8K[5:8]))
    assert "rows        8\n" in show(tmp_path).stdout
    assert "rows        3\n" in show(f"{tmp_path}@[-3:]").stdout
    assert "rows        5\n" in show(f"{tmp_path}/a*").stdout
    fixtures = ROOT / "tests" / "fixtures" / "rows"
    for name in ("list.json", "rows.csv", "rows.csv.gz", "rows.jsonl.gz", "rows.jsonl.zst", "file.arrow", "stream.arrow"):
        result = show(fixtures / name, "--input-key", "prompt", "--label-key", "label")
        assert result.returncode == 0, result.stderr
        assert "rows        4\n" in result.stdout and 'Say "1", or \u00e9' in result.stdout, name


def test_columns_are_renamed_and_wrong_rows_named(show, tmp_path):
    (tmp_path / "a.jsonl").write_text(lines([{"text": "1+1", "sum": "2"}]))
    result = show(tmp_path / "a.jsonl", "--rename-columns", "text=input", "sum=label", "--label-key", "label")
    assert result.returncode == 0, result.stderr
    assert "label: 2" in result.stdout
    result = show(tmp_path / "a.jsonl")
    assert result.returncode == 2 and 'line 1: no field "input" (--input-key); the row has text, sum' in result.stderr
    result = show(tmp_path / "a.jsonl", "--data-format", "alpaca")
    assert result.returncode == 2 and "is no row of Alpaca (--data-format alpaca)" in result.stderr
    (tmp_path / "broken.jsonl.gz").write_bytes(gzip.compress(lines(GSM8K).encode())[:-20])
    assert show(tmp_path / "broken.jsonl.gz").returncode == 2


def test_a_row_does_not_steer_the_terminal(show, tmp_path):
    (tmp_path / "a.jsonl").write_text(lines([{"input": "\033[2Jgone"}]))
    assert "\\x1b[2Jgone" in show(tmp_path / "a.jsonl").stdout

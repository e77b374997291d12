"""`slime score`: JSON lines of responses in, JSON lines of scores out."""

import json
import subprocess
import time

from conftest import SLIME

LINES = "".join(json.dumps(line) + "\n" for line in (
    {"response": r"so \boxed{0=5}", "label": "5"},
    {"response": "Answer: 7", "label": "7", "metadata": {"rm_type": "dapo"}},
    {"response": "x", "label": None}))


def score(*arguments, text=LINES):
    return subprocess.run([SLIME, "score", *arguments], input=text, capture_output=True, text=True, timeout=60)


def test_scores_with_reasons_and_a_summary():
    done = score("--rm-type", "math")
    assert done.returncode == 1, done.stderr  # a line has no score
    strict, dapo, unlabelled = map(json.loads, done.stdout.splitlines())
    assert strict == {"score": 0.0}
    assert dapo["score"] == 1.0 and dapo["reward"]["pred"] == "7"
    assert unlabelled == {"score": None, "reason": "math: the label is missing"}
    assert "3 responses, 2 scored, mean 0.5, 1 without a score" in done.stderr


def test_the_flag_grades_as_the_original(tmp_path):
    file = tmp_path / "responses.jsonl"
    file.write_text(LINES)
    done = score("--rm-type", "math", "--no-rm-strict", str(file))
    assert json.loads(done.stdout.splitlines()[0]) == {"score": 1.0}


def test_what_cannot_work_ends_with_2():
    assert score("--rm-type", "mth").returncode == 2
    assert "needs --rm-url" in score("--rm-type", "remote_rm").stderr
    for line, says in (
        ('{"label": 1}', 'response is missing'),
        ('{"response": "4", "label": "3", "label": "4"}', 'the key "label" is there twice'),
        ('{"response": "4", "metadata": {"rm_type": 5}}', "rm_type 5: should be a string"),
        ('{"response": "4", "metadata": {"rm_type": "mth"}}', "rm_type mth: unknown"),
    ):
        bad = score("--rm-type", "math", text=line + "\n")
        assert bad.returncode == 2 and f"standard input, line 1: {says}" in bad.stderr, bad.stderr


def test_a_line_that_needs_a_server_without_one_ends_it_at_once():
    begin = time.monotonic()
    done = score("--rm-type", "math", text='{"response": "4", "metadata": {"rm_type": "remote_rm"}}\n')
    assert done.returncode == 2 and "line 1: rm_type remote_rm: needs --rm-url" in done.stderr
    assert time.monotonic() - begin < 10


def test_what_is_no_file_of_lines_is_named(tmp_path):
    folder = score("--rm-type", "math", str(tmp_path))
    assert folder.returncode == 2 and f"{tmp_path}: is a directory" in folder.stderr
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    nothing = score("--rm-type", "math", str(empty))
    assert nothing.returncode == 2 and f"{empty}: no lines" in nothing.stderr
    marked = tmp_path / "marked.jsonl"
    marked.write_text('{"response": "\\\\boxed{4}", "label": "4"}\n', encoding="utf-8-sig")
    done = score("--rm-type", "math", str(marked))
    assert done.returncode == 0 and json.loads(done.stdout) == {"score": 1}, done.stderr

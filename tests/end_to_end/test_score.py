"""`slime score`: JSON lines of responses in, JSON lines of scores out."""

import json
import subprocess

from conftest import SLIME

LINES = "".join(json.dumps(line) + "\n" for line in (
    {"response": r"so \boxed{0=5}", "label": "5"},
    {"response": "Answer: 7", "label": "7", "metadata": {"rm_type": "dapo"}},
    {"response": "x", "label": "7", "metadata": {"rm_type": "mth"}}))


def score(*arguments, text=LINES):
    return subprocess.run([SLIME, "score", *arguments], input=text, capture_output=True, text=True, timeout=60)


def test_scores_with_reasons_and_a_summary():
    done = score("--rm-type", "math")
    assert done.returncode == 0, done.stderr
    strict, dapo, unknown = map(json.loads, done.stdout.splitlines())
    assert strict == {"score": 0.0}
    assert dapo["score"] == 1.0 and dapo["reward"]["pred"] == "7"
    assert unknown["score"] is None and "rm_type mth: unknown" in unknown["reason"]
    assert "3 responses, 2 scored, mean 0.5, 1 without a score" in done.stderr


def test_the_flag_grades_as_the_original(tmp_path):
    file = tmp_path / "responses.jsonl"
    file.write_text(LINES)
    done = score("--rm-type", "math", "--no-rm-strict", str(file))
    assert json.loads(done.stdout.splitlines()[0]) == {"score": 1.0}


def test_what_cannot_work_ends_with_2():
    assert score("--rm-type", "mth").returncode == 2
    assert "needs --rm-url" in score("--rm-type", "remote_rm").stderr
    bad = score("--rm-type", "math", text='{"label": 1}\n')
    assert bad.returncode == 2 and 'standard input, line 1: response is missing' in bad.stderr

"""`slime score`: JSON lines of responses in, JSON lines of scores out."""

import json
import subprocess
import time

import pytest
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


# A function of the user's, which is called as in training.

ANIMALS = "".join(json.dumps({"response": f"A {animal}.", "label": "cat", "prompt": "name"}) + "\n" for animal in ("cat", "dog", "cat"))
FUNCTIONS = {
    "plain": "def reward(args, sample, **kwargs):\n    return float(sample.label in sample.response)\n",
    "async": "import asyncio\nasync def reward(args, sample, **kwargs):\n    await asyncio.sleep(0)\n    return float(sample.label in sample.response)\n",
    "class": "class Reward:\n    def compute_reward(self, prompts, responses):\n        return [float('cat' in each) for each in responses]\n",
    "rule": "from slime.rollout.rm_hub.native import score\nasync def reward(args, sample, **kwargs):\n"
    "    return await score('math', '\\\\boxed{' + str(int('cat' in sample.response)) + '}', '1')\n",
}


def score_with(tmp_path, code, *arguments, text=ANIMALS, name="own.py"):
    (tmp_path / "own.py").write_text(code)
    command = [SLIME, "score", "--custom-rm-path", name, *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, cwd=tmp_path)


@pytest.mark.parametrize("form", FUNCTIONS)
def test_a_function_scores_lines_in_their_order(tmp_path, form):
    done = score_with(tmp_path, FUNCTIONS[form], name="own.py:Reward" if form == "class" else "own.py")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["score"] for line in done.stdout.splitlines()] == [1, 0, 1]
    assert "3 responses, 3 scored, mean 0.6667" in done.stderr


def test_a_function_gets_the_samples_of_a_prompt_together(tmp_path):
    rows = [{"prompt": prompt, "response": "x" * n} for prompt, n in (("a", 1), ("a", 3), ("b", 2), ("b", 1), ("b", 2))]
    code = "def reward(args, samples, **kwargs):\n    longest = max(len(s.response) for s in samples)\n    return [float(len(s.response) == longest) for s in samples]\n"
    done = score_with(tmp_path, code, "--group-rm", text="".join(json.dumps(row) + "\n" for row in rows))
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["score"] for line in done.stdout.splitlines()] == [0, 1, 1, 0, 1]


def test_what_a_function_raises_and_prints_is_shown_and_other_lines_have_scores(tmp_path):
    code = "def reward(args, sample, **kwargs):\n    print('seen', sample.response)\n    return {'points': 1 / ('dog' not in sample.response)}\n"
    done = score_with(tmp_path, code, "--reward-key", "points")
    assert done.returncode == 1, done.stderr
    first, failed, last = map(json.loads, done.stdout.splitlines())
    assert first == last == {"score": 1, "reward": {"points": 1}}
    assert failed["score"] is None and "ZeroDivisionError" in failed["reason"] and "own.py:3" in failed["reason"]
    assert "Traceback" in done.stderr and "seen A dog." in done.stderr


def test_a_function_finds_flags_behind_two_dashes_in_args(tmp_path):
    code = "def reward(args, sample, **kwargs):\n    return args.my_limit + args.rollout_max_response_len / 1000 + (args.n_samples_per_prompt == 1)\n"
    done = score_with(tmp_path, code, "--", "--my-limit", "3", "--rollout-max-response-len", "512")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["score"] for line in done.stdout.splitlines()] == pytest.approx([4.512] * 3)
    wrong = score_with(tmp_path, code, "--", "--rollout-max-response-len", "many")
    assert wrong.returncode == 2 and "--rollout-max-response-len" in wrong.stderr
    assert "needs --custom-rm-path" in score("--rm-type", "math", "--", "--lr", "1").stderr


def test_a_function_that_cannot_be_imported_ends_it_with_2(tmp_path):
    done = score_with(tmp_path, "import no_such_module\n")
    assert done.returncode == 2 and "--custom-rm-path own.py: ModuleNotFoundError" in done.stderr, done.stderr
    assert "--group-rm: needs --custom-rm-path" in score("--group-rm").stderr

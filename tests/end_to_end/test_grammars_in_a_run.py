"""Generate functions ask for a grammar as for any other sampling parameter; training knows which tokens it bound."""

import json
import sys

import pytest
from conftest import metric, run_slime, train_command

GENERATE = """
import json
from slime.rollout.sglang_rollout import generate as stock

SCHEMA = {"enum": [{"a": 1}, {"b": 2}]}

async def generate(args, sample, sampling_params):
    asked = {**sampling_params, "max_new_tokens": 40, "json_schema": json.dumps(SCHEMA)}
    sample = await stock(args, sample, asked)
    sample.reward = float(sample.response.replace("<|im_end|>", "").endswith("1}"))
    return sample
"""


def rows_of(run_dir):
    return [json.loads(line) for file in sorted((run_dir / "rollouts").glob("*.jsonl")) for line in file.open()]


def run(work, name, *flags):
    folder = work / f"{name}-code"
    folder.mkdir()
    (folder / "bound.py").write_text(GENERATE)
    own = ["--custom-generate-function-path", "bound.py", "--plugin-python", sys.executable, *flags]
    return run_slime(train_command(work, work / name, rollouts=2, extra=own), cwd=folder)


def test_a_generate_function_asks_for_a_schema(work):
    pytest.importorskip("transformers", reason="the stock function needs transformers")
    done = run(work, "grammars", "--sglang-constrained-json-disable-any-whitespace")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = rows_of(work / "grammars")
    assert len(rows) >= 32
    for row in rows:
        assert row["response"].replace("<|im_end|>", "") in ('{"a":1}', '{"b":2}'), row["response"]
        assert row["rollout_constrained"] == [1] * row["response_length"]
    assert metric(work / "grammars", "rollout/constrained_tokens") == [1, 1]


def test_without_a_backend_a_grammar_is_refused(work):
    done = run(work, "no-grammars", "--sglang-grammar-backend", "none")
    assert done.returncode != 0
    assert "json_schema asks for constrained decoding" in done.stdout + done.stderr

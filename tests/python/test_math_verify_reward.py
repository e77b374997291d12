"""--rm-type math_verify: labels as data sets have them, and what is said where the package is missing (docs/rewards.md)."""

import asyncio
import importlib
import sys
import types

import pytest

NAME = "slime.rollout.rm_hub.math_verify_reward"


@pytest.fixture
def reward(monkeypatch):
    """The module with a package that compares letter by letter."""
    package = types.ModuleType("math_verify")
    package.parse = lambda text, parsing_timeout: [text.rsplit("\\boxed{", 1)[-1].rstrip("}")] if "\\boxed{" in text else []
    package.verify = lambda gold, given, timeout_seconds: gold == given
    monkeypatch.setitem(sys.modules, "math_verify", package)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    module = importlib.import_module(NAME)
    yield module
    sys.modules.pop(NAME, None)


def score(module, response, label):
    return asyncio.run(module.reward_func(None, types.SimpleNamespace(response=response, label=label)))


@pytest.mark.parametrize("label", ["72", 72, ["71", "72"], '["72"]', "['71' '72']", "48/2 = 24\n#### 72", "\\boxed{72}"])
def test_a_label_may_be_as_data_sets_have_it(reward, label):
    assert score(reward, "so \\boxed{72}", label) == 1
    assert score(reward, "so \\boxed{24}", label) == 0
    assert score(reward, "so 72", label) == 0


@pytest.mark.parametrize("label", [None, "", [], " "])
def test_a_label_without_an_answer_is_an_error(reward, label):
    with pytest.raises(ValueError, match="missing or empty"):
        score(reward, "\\boxed{72}", label)


def test_a_missing_package_is_told_with_the_pip_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "math_verify", None)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    with pytest.raises(ImportError, match="-m pip install 'math-verify"):
        importlib.import_module(NAME)

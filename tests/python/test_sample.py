"""Sample: the golden cases of append_response_tokens, and what user code relies on beside."""

import copy
import math
import pickle
from argparse import Namespace

import pytest
from golden_cases import golden
from slime.utils.types import Sample

APPENDS = golden("sample_append")


def _initial(case):
    """The golden inputs were written after the steps, with lists that grew: what the steps append is cut off again."""
    steps, fields = case["inputs"]["steps"], dict(case["inputs"]["initial"])
    appended = sum(len(step.get("tokens") or []) for step in steps)
    tokens = fields.pop("tokens", [])
    if appended and "error" not in case["expected"] or tokens[-appended:] == [t for s in steps for t in s["tokens"]]:
        tokens = tokens[: len(tokens) - appended] if appended else tokens
    length = fields.get("response_length", 0)
    for name in ("loss_mask", "rollout_log_probs"):
        if name in fields:
            fields[name] = fields[name][:length]
    return Sample(tokens=tokens, **fields)


def _plain(value):
    return value.tolist() if hasattr(value, "tolist") else value


def _args(case):
    return Namespace(**case["params"])


@pytest.mark.parametrize("case", APPENDS, ids=[case["name"] for case in APPENDS])
def test_appending_follows_the_golden_cases(case):
    sample = _initial(case)
    if "error" in case["expected"]:
        with pytest.raises(ValueError):
            for step in case["inputs"]["steps"]:
                sample.append_response_tokens(_args(case), **step)
        return
    for step, expected in zip(case["inputs"]["steps"], case["expected"]["after_each_step"]):
        sample.append_response_tokens(_args(case), **step)
        names = {
            "top_p_token_ids": "rollout_top_p_token_ids",
            "top_p_token_offsets": "rollout_top_p_token_offsets",
            "routed_experts": "rollout_routed_experts",
        }
        for name, value in expected.items():
            if name in ("cached_tokens", "total_prompt_tokens"):
                actual = getattr(sample.prefix_cache_info, name)
            elif name == "status":
                actual = sample.status.value
            else:
                actual = _plain(getattr(sample, names.get(name, name)))
            assert actual == value, name


def test_a_list_that_was_given_is_not_grown():
    prompt = [1, 2]
    sample = Sample(tokens=prompt)
    sample.append_response_tokens(tokens=[3], log_probs=[-0.5])
    assert prompt == [1, 2] and sample.tokens == [1, 2, 3]


def test_tokens_of_a_tool_may_come_with_zeros():
    sample = Sample(tokens=[1])
    sample.append_response_tokens(tokens=[2, 3], log_probs=[0.0, 0.0], trainable=False)
    assert sample.rollout_log_probs == [0.0, 0.0] and sample.loss_mask == [0, 0]


def test_tokens_under_a_grammar_are_marked_and_have_the_log_probs_that_training_computes():
    sample = Sample(tokens=[1])
    free = [[-0.5, 7, None], [-2.0, 8, None]]
    bound = {"num_constrained_tokens": 1, "output_token_free_logprobs": free}
    sample.append_response_tokens(None, tokens=[5], log_probs=[-1.0])
    sample.append_response_tokens(None, tokens=[7, 8], log_probs=[-0.5, 0.0], meta_info=bound)
    sample.append_response_tokens(None, tokens=[9], trainable=False)
    assert list(sample.rollout_constrained) == [0, 0, 1, 0]
    assert list(sample.rollout_log_probs) == [-1.0, -0.5, -2.0, 0.0]
    with pytest.raises(ValueError, match="return_free_logprobs"):
        sample.append_response_tokens(None, tokens=[7], log_probs=[-0.5], meta_info={"num_constrained_tokens": 1})


def test_attributes_of_ones_own_survive_a_dictionary_a_pickle_and_a_copy():
    sample = Sample(index=3, status=Sample.Status.TRUNCATED)
    sample.tool_calls = 2
    sample.spec_info.spec_verify_ct = 4
    for again in (Sample.from_dict(sample.to_dict()), pickle.loads(pickle.dumps(sample)), copy.deepcopy(sample)):
        assert again == sample and again.tool_calls == 2 and again.status is Sample.Status.TRUNCATED
        assert again.spec_info.spec_verify_ct == 4 and again.to_dict()["tool_calls"] == 2


def test_reward_value_and_trained_length():
    sample = Sample(reward={"score": 0.5}, response_length=3)
    assert sample.get_reward_value(Namespace(reward_key="score")) == 0.5
    assert sample.effective_response_length == 3
    sample.loss_mask = [1, 0, 1]
    assert sample.effective_response_length == 2


def test_speculative_counters_count_only_with_an_algorithm():
    meta = {"finish_reason": {"type": "stop"}, "spec_verify_ct": 2, "completion_tokens": 6}
    sample = Sample()
    sample.append_response_tokens(Namespace(sglang_speculative_algorithm=None), tokens=[1], log_probs=[0], meta_info=meta)
    assert sample.spec_info.spec_verify_ct == 0
    sample.append_response_tokens(Namespace(sglang_speculative_algorithm="X"), tokens=[1], log_probs=[0], meta_info=meta)
    assert math.isclose(sample.spec_info.spec_accept_length, 3.0)
    assert "verify_compared_token_num" not in sample.spec_info.to_dict()
    verified = {**meta, "verify_compared_token_num": 4, "verify_redrawn_token_num": 1}
    sample.append_response_tokens(Namespace(sglang_speculative_algorithm="VERIFY"), tokens=[1], log_probs=[0], meta_info=verified)
    again = Sample.SpecInfo.from_dict(sample.spec_info.to_dict())
    assert (again.verify_compared_token_num, again.verify_redrawn_token_num, again.spec_verify_ct) == (4, 1, 4)


def test_torch_stays_away():
    import subprocess
    import sys

    code = (
        "import sys, slime.utils.types, slime.rollout.sglang_rollout, slime.rollout.rm_hub, slime.rollout.data_source, "
        "slime.agent.adapters, slime.agent.harness, slime.agent.aiohttp_threaded, slime.host.service, "
        "slime.backends.megatron_utils.cp_utils, slime.utils.mask_utils, slime.rollout.fully_async_rollout; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'numpy', 'aiohttp', 'httpx')))"
    )
    from golden_cases import ROOT

    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT / "python")}).returncode == 0

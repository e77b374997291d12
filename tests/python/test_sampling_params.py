"""sampling_params that the rollout of python/slime makes of flags and of the settings of an evaluation."""

from argparse import Namespace

from slime.agent.adapters.fields import SAMPLING
from slime.rollout.sampling_params import NAMES, evaluation_params, log_prob_fields, rollout_params
from slime.utils.eval_config import EvalDatasetConfig


def flags(**more):
    return Namespace(
        rollout_temperature=0.7,
        rollout_top_p=1.0,
        rollout_top_k=-1,
        rollout_max_response_len=64,
        rollout_stop=None,
        rollout_stop_token_ids=[3],
        rollout_skip_special_tokens=True,
        **more,
    )


FIXED = {"no_stop_trim": True, "spaces_between_special_tokens": False}


def test_training_has_the_parameters_of_the_flags():
    assert rollout_params(flags()) == {
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": -1,
        "max_new_tokens": 64,
        "stop": None,
        "stop_token_ids": [3],
        "skip_special_tokens": True,
        **FIXED,
    }


def test_a_flag_for_any_parameter_of_the_engine_is_used():
    assert rollout_params(flags(rollout_min_p=0.05))["min_p"] == 0.05


def test_a_data_set_comes_before_evaluation_flags_and_those_before_the_flags_of_training():
    config = EvalDatasetConfig(name="a", path="a.jsonl", top_p=0.5, no_stop_trim=False, max_response_len=8)
    params = evaluation_params(flags(eval_min_new_tokens=2, eval_temperature=0.0, eval_top_p=0.9), config)
    assert params == {
        "temperature": 0.0,
        "top_p": 0.5,
        "top_k": -1,
        "max_new_tokens": 8,
        "min_new_tokens": 2,
        "stop": None,
        "stop_token_ids": [3],
        "skip_special_tokens": True,
        "no_stop_trim": False,
        "spaces_between_special_tokens": False,
    }


def test_agents_pass_on_each_parameter_that_the_adapter_has_no_rule_for():
    own_rules = {"stop", "logit_bias", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim"}
    grammars = {"json_schema", "regex", "ebnf", "structural_tag"}
    assert set(NAMES.values()) - set(SAMPLING) == own_rules | grammars | {"max_tokens", "seed"}
    assert SAMPLING["min_tokens"] == "min_new_tokens"


def test_under_a_constraint_log_probs_without_it_are_asked_for():
    assert log_prob_fields({"temperature": 1.0, "regex": "", "bad_words": []}) == {"return_logprob": True}
    for constraint in ({"json_schema": "{}"}, {"allowed_token_ids": [3]}, {"bad_words": ["a"]}):
        assert log_prob_fields(constraint) == {"return_logprob": True, "return_free_logprobs": True}

"""What a sample keeps of its sampler for score centering: from the engine's answer to the trainer's record."""

import base64
import math
from argparse import Namespace
from array import array

import pytest
from slime.host import records
from slime.utils import sampler_record
from slime.utils.number_table import NumberTable
from slime.utils.types import Sample


class Columns(list):
    def add(self, numbers):
        self.append(numbers)
        return {"$column": len(self) - 1}


def packed(typecode, numbers):
    return base64.b64encode(array(typecode, numbers).tobytes()).decode()


def centering(top_p=1.0, top_k=2, **more):
    return Namespace(use_score_centering=True, rollout_top_p=top_p, rollout_temperature=0.8, score_centering_top_k=top_k, **more)


def head(ids, log_probs, shape):
    return {
        "output_topk_token_ids": packed("i", ids),
        "output_topk_log_probs": packed("f", log_probs),
        "output_topk_shape": shape,
    }


def support(ids, offsets, log_probs):
    return {
        "top_p_token_ids": packed("i", ids),
        "top_p_token_offsets": packed("i", offsets),
        "top_p_log_probs": packed("f", log_probs),
    }


def test_a_request_asks_for_the_head_or_for_the_support():
    params = {"max_new_tokens": 4}
    assert sampler_record.request_fields(centering(), params) == {"return_logprob": True, "top_logprobs_num": 2}
    assert params == {"max_new_tokens": 4, "temperature": 0.8, "top_p": 1.0}
    params = {"custom_params": {"mine": 1}}
    given = params["custom_params"]
    assert sampler_record.request_fields(centering(0.9), params) == {"return_logprob": True}
    assert params["custom_params"] == {"mine": 1, "return_top_p_token_ids": True, "return_top_p_log_probs": True}
    assert given == {"mine": 1}, "parameters of other requests stay"
    assert sampler_record.request_fields(Namespace(), {}) == {}


def test_a_request_for_another_distribution_is_refused_with_all_that_is_wrong():
    params = {"temperature": 1.0, "top_p": 0.5, "top_k": 40, "min_p": 0.1, "repetition_penalty": 1.2, "regex": "a*", "min_new_tokens": 3}
    with pytest.raises(ValueError) as error:
        sampler_record.request_fields(centering(), params)
    for word in ("temperature is 1.0, and --rollout-temperature is 0.8", "top_p is 0.5", "top_k is 40", "min_p is 0.1",
                 "repetition_penalty is 1.2", "min_new_tokens is 3", "regex changes what can be drawn"):  # fmt: skip
        assert word in str(error.value), word


def test_an_evaluation_wants_nothing():
    args = centering()
    own = sampler_record.of_evaluation(args)
    assert not own.use_score_centering and args.use_score_centering
    assert sampler_record.request_fields(own, {"temperature": 0}) == {}
    assert sampler_record.of_evaluation(own) is own


def test_heads_grow_with_the_response_and_tokens_of_tools_have_one_that_nothing_reads():
    args, sample = centering(), Sample(tokens=[8])
    sample.append_response_tokens(args, tokens=[9], trainable=False)
    sample.append_response_tokens(args, tokens=[4, 2], log_probs=[-0.5, -1], meta_info=head([4, 1, 2, 3], [-0.5, -2, -1, -1], [2, 2]))
    sample = Sample.from_dict(sample.to_dict())
    sample.append_response_tokens(args, tokens=[5], log_probs=[-0.25], meta_info=head([5, 6], [-0.25, -2], [1, 2]))
    assert sample.rollout_topk_token_ids.tolist() == [[0, 1], [4, 1], [2, 3], [5, 6]]
    assert sample.rollout_topk_log_probs.shape == (4, 2)
    assert sample.rollout_topk_log_probs[0] == pytest.approx([-math.log(2)] * 2)


def test_answers_of_stock_servers_have_heads_too():
    args, sample = centering(), Sample(tokens=[8])
    meta = {"output_top_logprobs": [[[-0.5, 4, None], [-2.0, 1, None]]]}
    sample.append_response_tokens(args, tokens=[4], log_probs=[-0.5], meta_info=meta)
    assert sample.rollout_topk_token_ids.tolist() == [[4, 1]]


def test_supports_grow_with_the_response_and_tokens_of_tools_have_none():
    args, sample = centering(0.9), Sample(tokens=[8])
    sample.append_response_tokens(args, tokens=[9], trainable=False)
    for _ in range(2):
        meta = support([1, 4, 2], [0, 2, 3], [math.log(0.3), math.log(0.7), 0])
        sample.append_response_tokens(args, tokens=[4, 2], log_probs=[math.log(0.7), 0], meta_info=meta)
        sample.append_response_tokens(args, tokens=[9], trainable=False)
        sample = Sample.from_dict(sample.to_dict())
    assert list(sample.rollout_top_p_token_offsets) == [0, 0, 2, 3, 3, 5, 6, 6]
    assert sample.rollout_top_p_log_probs.tolist() == pytest.approx([math.log(0.3), math.log(0.7), 0] * 2)
    assert sample.rollout_topk_token_ids is None


@pytest.mark.parametrize(
    "args, meta, word",
    [
        (centering(), {}, "top_logprobs_num 2"),
        (centering(), head([4, 1], [-1, -2], [2, 1]), "output_topk_shape is [2, 1], not [1, 2]"),
        (centering(), head([4, 4], [-1, -2], [1, 2]), "distinct"),
        (centering(), head([4, -1], [-1, -2], [1, 2]), "not negative"),
        (centering(), head([4, 1], [-0.1, -0.2], [1, 2]), "no distribution"),
        (centering(), head([4, 1], [float("nan"), -2], [1, 2]), "no distribution"),
        (centering(0.9), {}, "return_top_p_log_probs"),
        (centering(0.9), support([4, 1], [0, 2], [-1]), "1 top-p log-probs for 2 ids"),
    ],
)
def test_what_is_missing_or_wrong_is_said(args, meta, word):
    with pytest.raises(ValueError) as error:
        Sample(tokens=[8]).append_response_tokens(args, tokens=[4], log_probs=[-1], meta_info=meta)
    assert word in str(error.value)


def test_without_score_centering_nothing_of_a_head_is_kept():
    sample = Sample(tokens=[8])
    sample.append_response_tokens(Namespace(), tokens=[4], log_probs=[-1], meta_info=head([4, 1], [-1, -2], [1, 2]))
    assert sample.rollout_topk_token_ids is None


@pytest.mark.parametrize("rows", [1, 40])
def test_tables_travel_as_columns_and_back(rows):
    sample = Sample(tokens=[8, *range(rows)], response_length=rows)
    sample.rollout_topk_token_ids = [[row, row + 1] for row in range(rows)]
    sample.rollout_topk_log_probs = NumberTable(array("f", [-0.5, -1.5] * rows), 2)
    columns = Columns()
    record = records.to_record(sample, columns)
    again = records.from_record(record, columns)
    assert again.rollout_topk_token_ids.tolist() == sample.rollout_topk_token_ids
    assert again.rollout_topk_log_probs == sample.rollout_topk_log_probs
    assert "rollout_topk_token_ids" not in records.to_record(Sample(tokens=[8]), Columns())

"""What slime 0.4 has for functions: traces, ages, the pacer, data sources' states, archives, hand-over without a queue."""

import asyncio
import json
import logging
from argparse import Namespace

import pytest
from slime.data.archive import RolloutArchive
from slime.data.data_source import RolloutDataSource, RolloutDataSourceWithBuffer, pop_oldest
from slime.data.transport import inherit_queue_context, load_rollout_samples, pack_rollout_payload, publish_rollout_async, use_straw
from slime.observability import trace_utils as trace
from slime.observability.logging_utils import log
from slime.observability.metric_utils import compute_pass_rate, compute_statistics
from slime.observability.timer import Timer, timer
from slime.rollout.base_types import RolloutFnEvalOutput, RolloutFnTrainOutput, call_rollout_fn, finalize_rollout_groups, iter_samples
from slime.rollout.sample_hooks import apply_rollout_sample_hooks, rollout_context, set_current_rollout_id
from slime.utils.async_utils import AsyncPacer
from slime.utils.routed_experts import validate_routed_experts_value
from slime.utils.score_centering import validate_sampler_topk
from slime.utils.staleness import compute_staleness_metrics, sample_staleness
from slime.utils.types import Sample
from slime.utils.weight_sync import should_flush_cache


def of(*versions):
    return Sample(weight_versions=list(versions))


# Traces.


def test_spans_nest_and_say_what_they_were_told():
    sample = Sample(index=4, group_index=1)
    with trace.trace_span(sample, "outer", attrs={"a": 1}) as outer:
        with trace.trace_span(sample, "inner"):
            trace.trace_event(sample, "here", attrs={"object": object()})
        outer.set("b", float("nan")).update({"c": (1, 2)})
    events = sample.trace["events"]
    assert [(each["type"], each["name"]) for each in events] == [
        ("span_start", "outer"), ("span_start", "inner"), ("event", "here"), ("span_end", "inner"), ("span_end", "outer"),
    ]  # fmt: skip
    assert events[1]["parent_span_id"] == events[0]["span_id"] and events[2]["parent_span_id"] == events[1]["span_id"]
    assert events[4]["attrs"] == {"b": "nan", "c": [1, 2]} and {each["sample_id"] for each in events} == {4}
    json.dumps(sample.trace)


def test_an_exception_is_noted_and_goes_on():
    sample = Sample()
    with pytest.raises(KeyError):
        with trace.trace_span(sample, "s"):
            raise KeyError("k")
    assert sample.trace["events"][-1]["attrs"]["error_type"] == "KeyError"


def test_functions_find_their_sample_by_name_by_getter_by_kind_and_around_them():
    sample = Sample()

    @trace.trace_function("by_name", target="it")
    async def by_name(args, it):
        return inside()

    @trace.trace_function("around")
    def inside():
        return 1

    @trace.trace_function("getter", target_getter=lambda pair: pair[0], attrs_getter=lambda pair: {"n": len(pair)})
    def getter(pair):
        return 2

    @trace.trace_function("kind")
    def kind(args, group):
        return 3

    assert (asyncio.run(by_name(None, sample)), getter((sample, 0)), kind(None, [sample])) == (1, 2, 3)
    starts = [each for each in sample.trace["events"] if each["type"] == "span_start"]
    assert [each["name"] for each in starts] == ["by_name", "around", "getter", "kind"] and starts[2]["attrs"] == {"n": 2}


def test_what_cannot_be_traced_runs_all_the_same():
    @trace.trace_function("f", target="missing")
    def function(value):
        return value

    assert function(3) == 3
    with trace.trace_span(None, "nothing") as span:
        span.update({"a": 1})


def test_a_trace_goes_on_in_another_process_and_attempts_are_counted():
    sample = Sample(index=1)
    with trace.trace_span(sample, "s"):
        word = json.loads(json.dumps(trace.export_trace(trace.bind_trace(sample))))
    far = trace.import_trace(word)
    with trace.trace_span(far, "far"):
        pass
    assert far.trace_id == sample.trace["trace_id"] and far.carrier["events"][0]["parent_span_id"] == word["parent_span_id"]
    assert trace.trace_next_attempt(sample).attempt == 1 and sample.trace["events"][-1]["attempt"] == 1


def test_a_sample_keeps_a_bounded_number_of_events(monkeypatch):
    monkeypatch.setattr(trace, "MOST_EVENTS", 3)
    sample = Sample()
    for _ in range(5):
        trace.trace_event(sample, "e")
    assert len(sample.trace["events"]) == 3 and sample.trace["num_left_out"] == 2


def test_phases_of_a_pair_of_servers_are_spans_inside():
    attrs = trace.build_sglang_meta_trace_attrs(
        {"id": "r", "prompt_tokens": 3, "finish_reason": {"type": "stop"}, "pd_prefill_forward_duration": 0.5, "pd_decode_forward_duration": 0.25}
    )
    children = attrs.pop(trace.TRACE_CHILDREN_KEY)
    assert attrs == {"prompt_tokens": 3, "finish_reason": "stop", "sglang_request_id": "r"}
    assert [(each["name"], each["start_offset"], each["end_offset"]) for each in children] == [
        ("sglang_pd_prefill", 0.0, 0.5), ("sglang_pd_decode", 0.5, 0.75),
    ]  # fmt: skip


def test_numbers_that_nobody_takes_are_printed(caplog):
    with caplog.at_level(logging.WARNING):
        log(None, {"rollout/step": 3, "mine/a": 1.5}, "rollout/step")
    assert "{'mine/a': 1.5}" in caplog.text


def test_timers_and_statistics():
    Timer().reset()
    with timer("block"):
        pass

    @timer
    def function():
        return 4

    assert function() == 4 and set(Timer().log_dict()) == {"block", "function"}
    assert compute_statistics([1, 2, 6]) == {"mean": 3, "median": 2, "max": 6, "min": 1}
    assert compute_pass_rate([1, 0, 0, 0, 1, 1, 1, 1], 4) == pytest.approx({"pass@1": 0.625, "pass@2": 0.75, "pass@4": 1.0})


# Ages and the schedule of flushes.


def test_the_age_is_that_of_the_oldest_token():
    assert sample_staleness(of("3", "5"), 6) == 3 and sample_staleness(of(5), 5) == 0
    assert sample_staleness(of(), 5) is sample_staleness(of("a"), 5) is sample_staleness(of("7"), 5) is None
    samples = [of("3", "5"), of("6"), of("x")]
    assert compute_staleness_metrics(samples, 6) == pytest.approx(
        {"staleness/unknown_count": 1, "staleness/mean": 1.5, "staleness/max": 3, "staleness/multi_version_frac": 1 / 3}
    )
    assert compute_staleness_metrics(samples, None) == {}


@pytest.mark.parametrize(
    "interval, flushed", [(-100, [1]), (-1, [1]), (0, [1]), (1, [1, 2, 3, 4, 5, 6, 7]), (2, [1, 3, 5, 7]), (3, [1, 4, 7])]
)
def test_which_publications_flush(interval, flushed):
    assert [version for version in range(1, 8) if should_flush_cache(interval, version)] == flushed
    assert should_flush_cache(interval, 6, initial_weight_version=5)


def test_the_oldest_groups_are_taken_first_and_those_without_a_version_last():
    groups = [[of("4")], [of()], [of("2", "9")], [of("4"), of("3")]]
    buffer = list(groups)
    assert pop_oldest(None, None, buffer, 2) == [groups[2], groups[3]] and buffer == [groups[0], groups[1]]


# The pacer.


def test_the_pacer_begins_some_at_a_time_and_forgets_nobody():
    async def main():
        pacer, begun, seen = AsyncPacer(), [], []

        async def one(i):
            await pacer.wait()
            begun.append(i)

        tasks = [asyncio.create_task(one(i)) for i in range(200)]
        tasks[3].cancel()
        while not all(task.done() for task in tasks):
            seen.append(len(begun))
            await asyncio.sleep(0)
        return begun, seen

    begun, seen = asyncio.run(main())
    assert begun == [i for i in range(200) if i != 3]
    assert max(b - a for a, b in zip([0, *seen], seen)) <= AsyncPacer.AT_ONCE


# Data sources.


def arguments(tmp_path, **own):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": f"p{i}"}) + "\n" for i in range(5)))
    given = dict(
        rollout_global_dataset=True, prompt_data=str(path), apply_chat_template=False, rollout_max_prompt_len=None, multimodal_keys=None,
        input_key="text", label_key=None, metadata_key="metadata", tool_key=None, apply_chat_template_kwargs=None, rollout_seed=1,
        rollout_shuffle=True, n_samples_per_prompt=2, buffer_filter_path=None, save=str(tmp_path / "out"), load=str(tmp_path / "out"),
    )  # fmt: skip
    return Namespace(**{**given, **own})


def prompts(groups):
    return [group[0].prompt for group in groups]


def test_a_source_goes_on_from_its_state_with_what_was_given_back(tmp_path):
    source = RolloutDataSourceWithBuffer(arguments(tmp_path))
    groups = source.get_samples(3)
    source.add_samples(groups[:1])
    state = source.state_dict()
    expected = prompts(source.get_samples(4))
    other = RolloutDataSourceWithBuffer(arguments(tmp_path))
    other.load_state_dict(state)
    assert prompts(other.get_samples(4)) == expected and expected[0] == groups[0][0].prompt
    source.add_samples(groups[1:2])
    source.save(7)
    third = RolloutDataSourceWithBuffer(arguments(tmp_path))
    third.load(7)
    assert third.get_buffer_length() == 1 and prompts(third.get_samples(1)) == [groups[1][0].prompt]
    assert "buffer" not in RolloutDataSource(arguments(tmp_path)).state_dict()


@pytest.mark.parametrize("with_id", [False, True])
def test_a_method_orders_the_buffer_with_and_without_the_rollouts_id(tmp_path, with_id):
    class Three(RolloutDataSourceWithBuffer):
        def buffer_filter(self, args, buffer, num_samples):
            return sorted(buffer, key=lambda group: -group[0].reward)[:num_samples]

    class Four(RolloutDataSourceWithBuffer):
        def buffer_filter(self, args, rollout_id, buffer, num_samples):
            assert rollout_id is None
            return [buffer.pop() for _ in range(num_samples)]

    source = (Four if with_id else Three)(arguments(tmp_path))
    source.add_samples([[Sample(reward=1), Sample()], [Sample(reward=5), Sample()]])
    assert source.get_samples(1)[0][0].reward == 5 and source.get_buffer_length() == 1


# Handing over.


def test_code_for_a_queue_runs_without_one():
    args = Namespace(rollout_data_transport="straw")
    group = [Sample(index=1), Sample(index=2)]
    assert not use_straw(args) and pack_rollout_payload(group, args, 1) is group
    assert asyncio.run(publish_rollout_async(group, args, 1, group=True)) is group and load_rollout_samples([group]) == [group]
    source, made = Sample(), [Sample(), [Sample()]]
    source._queue_lease, source.queue_policy_segments = {"task_id": 3}, [1]
    assert inherit_queue_context(source, made) is made
    assert [each._queue_lease for each in iter_samples(made)] == [{"task_id": 3}] * 2
    made[0]._queue_lease = {"task_id": 4}
    with pytest.raises(ValueError, match="_queue_lease"):
        inherit_queue_context(source, made)


def test_an_archive_gives_samples_by_their_keys(tmp_path):
    path = tmp_path / "rollout_3.jsonl"
    samples = [Sample(index=7, tokens=[1, 2], response_length=1, reward=0.5, status=Sample.Status.COMPLETED), Sample(status=Sample.Status.ABORTED)]
    samples[0].mine = {"a": [1]}
    RolloutArchive.save(path, samples, rollout_id=3)
    with RolloutArchive(path) as archive:
        assert archive.keys() == [("sample:7", None), ("position:1", None)]
        (found,) = archive.load_samples(sample_key="sample:7")
        assert found.tokens == [1, 2] and found.mine == {"a": [1]} and found.status is Sample.Status.COMPLETED
        assert len(archive.load_samples()) == 2
        with pytest.raises(KeyError):
            archive.load_samples(sample_key="sample:8")
    with pytest.raises(FileExistsError):
        RolloutArchive.save(path, samples, rollout_id=3)
    foreign = tmp_path / "x.straw.json"
    foreign.write_text(json.dumps({"format": "slime.straw-debug", "version": 1, "root": "/pool", "manifest": {}}))
    with pytest.raises(ValueError, match="straw-queue.*/pool"):
        RolloutArchive(foreign)


def test_outputs_of_rollout_functions_are_what_they_should_be():
    group = [[Sample(index=2)], [Sample(index=1)]]
    assert call_rollout_fn(lambda evaluation: group, evaluation=False).samples == group
    assert call_rollout_fn(lambda evaluation: {"a": {}}, evaluation=True) == RolloutFnEvalOutput(data={"a": {}})
    output = RolloutFnTrainOutput(samples=group, on_accepted=print, sample_refs=[1])
    assert call_rollout_fn(lambda evaluation: output, evaluation=False) is output
    for evaluation, wrong in ((False, {"a": 1}), (True, []), (False, None)):
        with pytest.raises(TypeError, match="the rollout function returned"):
            call_rollout_fn(lambda evaluation: wrong, evaluation=evaluation)
    done = finalize_rollout_groups(Namespace(rollout_sample_filter_path=None), 1, group, {"m": 1})
    assert [each.index for each in iter_samples(done.samples)] == [1, 2] and done.metrics == {"m": 1}


def test_hooks_of_concurrent_rollouts_get_their_own_number(tmp_path, monkeypatch):
    (tmp_path / "hooks_of_two.py").write_text("def note(args, sample, *, rollout_id):\n    sample.metadata['rollout'] = rollout_id\n")
    monkeypatch.syspath_prepend(tmp_path)
    args = Namespace(rollout_sample_hook_path=["hooks_of_two.note"])

    async def one(number):
        with rollout_context(number):
            await asyncio.sleep(0)
            return (await apply_rollout_sample_hooks(args, Sample(), evaluation=False)).metadata["rollout"]

    async def main():
        set_current_rollout_id(9)
        outside = await apply_rollout_sample_hooks(args, Sample(), evaluation=False)
        return await asyncio.gather(one(1), one(2)), outside.metadata["rollout"]

    assert asyncio.run(main()) == ([1, 2], 9)


# What training wants to know of tokens.


def test_routed_experts_are_looked_at():
    args, good = Namespace(num_layers=2, moe_router_topk=2, num_experts=4), [[[0, 1], [2, 3]]] * 3
    validate_routed_experts_value(good, args, expected_rows=3)
    for wrong, words in (([[[0, 1]]], "shape"), ([[[0, 1], [2, 4]]], "expert 4"), ([[[0, 0], [1, 2]]], "layer 0 has no choice")):
        with pytest.raises(ValueError, match=words):
            validate_routed_experts_value(wrong, args)
    with pytest.raises(ValueError, match="3 rows for 4"):
        validate_routed_experts_value(good, args, expected_rows=4)


def test_heads_of_the_sampler_are_looked_at():
    sample = Sample(index=1, tokens=[1, 2], response_length=1)
    with pytest.raises(ValueError, match="Score centering: sample 1 has no"):
        validate_sampler_topk(sample, 2)
    sample.rollout_topk_token_ids, sample.rollout_topk_log_probs = [[3, 4]], [[-0.5, -1.5]]
    validate_sampler_topk(sample, 2)
    for ids, values, words in (([[3, 3]], [[-1, -2]], "twice"), ([[3, 4]], [[-0.1, -0.1]], "mass"), ([[3]], [[-1]], "has 1 tokens"), ([[3, 4]], [[0.1, -9]], "above 0")):
        sample.rollout_topk_token_ids, sample.rollout_topk_log_probs = ids, values
        with pytest.raises(ValueError, match=words):
            validate_sampler_topk(sample, 2)

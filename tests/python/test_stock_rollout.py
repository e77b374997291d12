"""The stock rollout's functions against a stub engine."""

import asyncio
from argparse import Namespace
from types import SimpleNamespace

import pytest
from host_driver import FLAGS
from slime.rollout import sglang_rollout
from slime.rollout import fully_async_rollout
from slime.rollout.base_types import RolloutFnEvalOutput
from slime.rollout.filter_hub.base_types import DynamicFilterOutput
from slime.rollout.fully_async_rollout import AsyncRolloutWorker, generate_rollout_fully_async
from slime.rollout.generate_call import await_generate
from slime.utils.misc import SingletonMeta
from slime.utils.types import Sample
from stub_engine import StubEngine


@pytest.fixture(autouse=True)
def fresh_state():
    SingletonMeta._instances.clear()
    yield
    SingletonMeta._instances.clear()


def args_for(engine, **more):
    ip, port = engine.url[len("http://") :].split(":")
    return Namespace(**{**FLAGS, "sglang_router_ip": ip, "sglang_router_port": int(port), "rm_type": "random", **more})


class Source:
    def __init__(self):
        self.given, self.back = 0, []

    def get_samples(self, count):
        groups = []
        for _ in range(count):
            groups.append([Sample(index=self.given * 2 + i, tokens=[1, 2]) for i in range(2)])
            self.given += 1
        return groups

    def add_samples(self, groups):
        self.back += groups


def test_generate_appends_a_turn():
    with StubEngine([([5, 6], "ab", "length")]) as engine:
        sample = Sample(tokens=[1, 2], session_id="k")
        args = args_for(engine, router_policy="consistent_hashing")
        asyncio.run(sglang_rollout.generate(args, sample, {"max_new_tokens": 8}))
        assert sample.tokens == [1, 2, 5, 6] and sample.rollout_log_probs == [-0.5, -1.5]
        assert sample.status is Sample.Status.TRUNCATED and sample.weight_versions == ["4"]
        assert engine.requests[0]["input_ids"] == [1, 2] and engine.requests[0]["return_logprob"] is True


def test_the_process_function_gets_a_data_source_that_may_be_called(tmp_path):
    (tmp_path / "own.py").write_text(
        "def process(args, all_groups, data_source):\n"
        "    args.seen = [len(data_source), len(data_source(1)), len(data_source.get_samples(2))]\n"
        "    data_source.add_samples(all_groups[:1])\n"
    )

    class Counted(Source):
        def __len__(self):
            return 60

    with StubEngine([([5], "a", "stop")] * 4) as engine:
        source = Counted()
        args = args_for(engine, rollout_all_samples_process_path=str(tmp_path / "own.py") + ":process")
        sglang_rollout.generate_rollout(args, 0, source)
        assert args.seen == [60, 1, 2] and len(source.back) == 1


def test_a_step_takes_its_groups_and_aborts_the_rest():
    with StubEngine([([5], "a", "stop")] * 4) as engine:
        source = Source()
        output = sglang_rollout.generate_rollout(args_for(engine, over_sampling_batch_size=3), 0, source)
        assert [[sample.index for sample in group] for group in output.samples] in ([[0, 1], [2, 3]], [[0, 1], [4, 5]], [[2, 3], [4, 5]])
        assert all(sample.reward in (0, 1) for group in output.samples for sample in group)
        assert source.given == 3 and sglang_rollout.GenerateState(None).aborted is False
        assert engine.aborts


def test_an_abort_leaves_the_engine_alone_where_functions_are_cancelled(tmp_path, monkeypatch):
    (tmp_path / "slow_rest.py").write_text(
        "import asyncio\n"
        "async def generate(args, sample, sampling_params):\n"
        "    sample.append_response_tokens(args, tokens=[5], log_probs=[-0.5], text='a')\n"
        "    await asyncio.sleep(600 if sample.index > 3 else 0)\n"
        "    sample.status = sample.Status.COMPLETED\n"
        "    return sample\n"
        "generate.abort_mode = 'request'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with StubEngine([]) as engine:
        source = Source()
        args = args_for(
            engine,
            over_sampling_batch_size=3,
            partial_rollout=True,
            custom_generate_function_path="slow_rest.generate",
        )
        output = sglang_rollout.generate_rollout(args, 0, source)
        assert [[sample.index for sample in group] for group in output.samples] == [[0, 1], [2, 3]]
        assert [(sample.index, sample.status, sample.response) for sample in source.back[0]] == [
            (4, Sample.Status.ABORTED, "a"),
            (5, Sample.Status.ABORTED, "a"),
        ]
        state = sglang_rollout.GenerateState(None)
        assert not engine.aborts and not state.cancellable_tasks and state.active_server_generations == 0


def test_groups_with_one_reward_are_dropped_and_counted(tmp_path, monkeypatch):
    (tmp_path / "half_rm.py").write_text("async def rm(args, sample, **kw): return sample.index % 2 if sample.index > 1 else 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with StubEngine([([5], "a", "stop")] * 8) as engine:
        args = args_for(
            engine,
            custom_rm_path="half_rm.rm",
            rm_type=None,
            dynamic_sampling_filter_path="slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std",
        )
        output = sglang_rollout.generate_rollout(args, 0, Source())
        assert output.metrics == {"rollout/dynamic_filter/drop_zero_std_1": 1}
        assert [group[0].index for group in output.samples] == [2, 4] or len(output.samples) == 2


def test_a_worker_keeps_groups_in_flight():
    with StubEngine([([5], "a", "stop")] * 40) as engine:
        source = Source()
        worker = AsyncRolloutWorker(args_for(engine), source, concurrency=3)
        worker.start()
        groups = []
        while len(groups) < 6:
            assert worker.failure is None
            groups += worker.get_completed_groups(6 - len(groups))
        worker.stop()
        assert len({ordinal for ordinal, _ in groups}) == 6 and source.given <= 20


def keep_every_other(args, group):
    keep = group[0].index % 4 == 0
    return DynamicFilterOutput(keep=keep, reason=None if keep else "odd")


def remove_first(args, groups):
    for group in groups:
        group[0].remove_sample = True


def test_a_function_whose_generation_never_stops_filters_groups_and_evaluates_beside_them(monkeypatch):
    evaluated = RolloutFnEvalOutput(data={"set": {"rewards": [1.0]}})

    async def evaluate(args, rollout_id):
        await asyncio.sleep(0.05)
        return evaluated, []

    monkeypatch.setattr(fully_async_rollout, "eval_rollout", evaluate)
    source = Source()
    with StubEngine([([5], "a", "stop")] * 4000) as engine:
        args = args_for(
            engine,
            rollout_batch_size=3,
            dynamic_sampling_filter_path=f"{__name__}.keep_every_other",
            rollout_sample_filter_path=f"{__name__}.remove_first",
        )
        try:
            output = generate_rollout_fully_async(args, 0, source)
            assert generate_rollout_fully_async(args, 0, source, evaluation=True) is evaluated
            again = generate_rollout_fully_async(args, 1, source)
        finally:
            fully_async_rollout._stop_global_worker()
    indices = [group[0].index for group in output.samples]
    assert len(indices) == 3 and indices == sorted(indices) and all(index % 4 == 0 for index in indices)
    assert all([sample.remove_sample for sample in group] == [True, False] for group in output.samples)
    # Groups end in any order: three even ones may be the first.
    counts = [each.metrics["rollout/dynamic_filter/dropped_groups"] for each in (output, again)]
    assert [each.metrics.get("rollout/dynamic_filter/drop_odd", 0) for each in (output, again)] == counts and sum(counts) >= 1
    assert output.metrics["rollout/dynamic_filter/dropped_ratio"] == counts[0] / (3 + counts[0])
    assert not set(indices) & {group[0].index for group in again.samples}


def test_a_state_in_the_place_of_generate_states_need_not_count_calls():
    async def own(sample):
        return sample

    async def cancellable(sample):
        return sample

    cancellable.abort_mode = "request"
    sample = Sample(index=3)
    for function in (own, cancellable):
        assert asyncio.run(await_generate(SimpleNamespace(), function, sample, function(sample))) is sample

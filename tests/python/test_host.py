"""The host driven as the program drives it: every hook of the rollout's side, frames, questions back."""

import array
import time
from pathlib import Path

import pytest
from host_driver import HostProcess, records, samples_of
from slime.host.frames import Columns, FrameError, decode, encode
from slime.host.records import from_record, to_record
from slime.utils.types import Sample

HERE = Path(__file__).resolve().parent


def host(*hooks, **more):
    """A host of `hook=name in plugins.py` or `hook=path`."""
    return HostProcess([(kind, path if "." in path else f"plugins.{path}") for kind, path in hooks], HERE, **more)


def one_record(**fields):
    (record,), columns = records([Sample(**fields)])
    return record, columns


def test_a_payload_round_trips():
    arrays = [array.array(kind, [1, 2, 3]) for kind in "iqfdB"] + [array.array("f")]
    head = {"text": "\u00e4 \U0001f600", "numbers": [1, 2.5, None, True]}
    assert decode(encode(head, arrays)) == (head, arrays)
    assert decode(encode({}, ())) == ({}, [])


def test_a_payload_that_is_cut_off_is_refused():
    whole = encode({"a": 1}, [array.array("d", [1.0, 2.0])])
    for length in range(len(whole)):
        with pytest.raises(FrameError):
            decode(whole[:length])


def test_a_sample_round_trips():
    sample = Sample(
        index=7,
        group_index=2,
        prompt=[{"role": "user", "content": "hi"}],
        tokens=list(range(40)),
        response="\u00fc",
        response_length=20,
        label="4",
        reward={"score": 1.0},
        loss_mask=[1, 0] * 10,
        rollout_log_probs=[-0.5] * 20,
        status=Sample.Status.FAILED,
        metadata={"a": {"b": [1]}},
        weight_versions=["3"],
        train_metadata={"x": 1},
        non_generation_time=0.5,
    )
    sample.spec_info.spec_verify_ct = 2
    sample.own = [1, 2]
    (record,), columns = records([sample])
    head, arrays = decode(encode(record, columns))
    assert from_record(head, arrays) == sample and from_record(head, arrays).own == [1, 2]
    assert to_record(Sample(), Columns()) == {}


def test_a_status_may_be_set_by_its_name():
    assert to_record(Sample(status="truncated"), Columns())["status"] == "truncated"
    with pytest.raises(ValueError, match="is not a valid"):
        to_record(Sample(status="done"), Columns())


def test_ready_tells_what_functions_are():
    with host(("reward", "reward"), ("dynamic_filter", "dynamic_filter")) as h:
        assert h.ready["problems"] == []
        assert [hook["is_coroutine"] for hook in h.ready["hooks"]] == [True, False]
        assert h.ready["hooks"][0]["parameters"] == ["args", "sample", "kwargs"]


def test_a_file_and_the_conventional_name_in_it(tmp_path):
    file = tmp_path / "my_plugin.py"
    file.write_text("async def reward(args, sample): return 2\nasync def other(args, sample): return 3\n")
    record, columns = one_record(response="x")
    with HostProcess([("reward", str(file)), ("reward", f"{file}:other"), ("reward", "my_plugin.other")], tmp_path) as h:
        assert h.ready["problems"] == []
        values = [h.call({"hook": i, "sample": record}, columns)["value"]["reward"] for i in range(3)]
        assert values == [2, 3, 3]


def test_all_problems_are_told_at_once(tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    (tmp_path / "odd.py").write_text("class C: pass\ndef few(args): pass\nnumber = 4\n")
    hooks = [
        ("reward", "broken.reward"),
        ("reward", "odd.missing"),
        ("reward", "odd.C"),
        ("reward", "odd.few"),
        ("reward", "odd.number"),
        ("reward", "odd.py"),
        ("reward", "nowhere.py:f"),
        ("data_source", "odd.few"),
        ("reward", "nodots"),
    ]
    with HostProcess(hooks, tmp_path) as h:
        problems = h.ready["problems"]
        assert [problem["path"] for problem in problems] == [path for _, path in hooks]
        assert "no_such_module" in problems[0]["message"] and "broken.py" in problems[0]["traceback"]
        assert problems[0]["flag"] == "--custom-rm-path"
        assert "C, few, number" in problems[1]["message"]
        assert "class" in problems[2]["message"]
        assert "(args, sample)" in problems[3]["message"] and "too many" in problems[3]["message"]
        assert "write `async def reward(args, sample)`, or a class with `compute_reward(self, prompts, responses)`" in problems[3]["message"]
        assert "int" in problems[4]["message"]
        assert "reward" in problems[5]["message"]
        assert "slime/host" not in "".join(problem["traceback"] for problem in problems)


def test_generate():
    record, columns = one_record(index=1, prompt="p", tokens=[1, 2])
    with host(("generate", "generate")) as h:
        call = {"sample": record, "sampling_params": {"max_new_tokens": 20}, "evaluation": True}
        answers = h.finish(h.begin([dict(call), dict(call)], columns))
        for answer in answers:
            (sample,) = samples_of({**answer, "value": {"all": [answer["value"]["sample"]]}}, "all")
            assert sample.tokens == [1, 2] + [7] * 20 + [8] and sample.response == "ja tool"
            assert sample.loss_mask == [1] * 20 + [0] and sample.rollout_log_probs == [-0.25] * 20 + [0.0]
            assert sample.status is Sample.Status.COMPLETED and sample.turns == 2
            assert sample.metadata["evaluation"] is True
        assert sorted(answer["value"]["sample"]["metadata"]["calls"] for answer in answers) == [1, 2]


def test_generate_may_make_several_samples():
    record, columns = one_record(index=5)
    with host(("generate", "fan_out")) as h:
        answer = h.call({"sample": record, "sampling_params": {}}, columns)
        assert [sample.tokens for sample in samples_of(answer, "samples")] == [[1, 2], [1, 3, 4]]


def test_sample_hooks():
    record, columns = one_record(index=5, response="r")
    with host(("sample_hook", "sample_hook"), ("sample_hook", "other_sample_hook")) as h:
        call = {"sample": record, "rollout_id": 9, "evaluation": False}
        assert h.call({**call, "hook": 0}, columns)["value"]["sample"]["metadata"] == {"rollout_id": 9}
        changed = h.call({**call, "hook": 1}, columns)["value"]["sample"]
        assert changed["response"] == "r!" and changed["metadata"] == {"rollout_id": 9, "evaluation": False}


def test_rewards_single_and_of_a_group():
    record, columns = one_record(response="a", label="a")
    group, group_columns = records([Sample(index=i) for i in range(3)])
    with host(("reward", "reward"), ("reward", "plain_reward"), ("reward", "group_reward")) as h:
        assert h.call({"hook": 0, "sample": record}, columns)["value"] == {"reward": 1.0}
        assert h.call({"hook": 1, "sample": record}, columns)["value"] == {"reward": {"score": 1, "acc": True}}
        assert h.call({"hook": 2, "samples": group}, group_columns)["value"] == {"rewards": [0, 1, 2]}


def test_what_a_reward_changes_in_its_sample_comes_back():
    record, columns = one_record(response="a", metadata={"seen": {"by": "nobody"}})
    with host(("reward", "marking_reward")) as h:
        value = h.call({"sample": record}, columns)["value"]
        assert value["changes"] == {
            "metadata": {"seen": {"by": "me"}},
            "remove_sample": True,
            "extra": {"note": "kept"},
        }


def test_filters():
    group, columns = records([Sample(index=i, reward=i) for i in range(2)])
    buffer, buffer_columns = records([[Sample(index=i)] for i in range(4)])
    with host(
        ("dynamic_filter", "dynamic_filter"),
        ("dynamic_filter", "bool_filter"),
        ("buffer_filter", "buffer_filter"),
        ("sample_filter", "sample_filter"),
    ) as h:
        value = h.call({"hook": 0, "samples": group}, columns)["value"]
        assert value == {"keep": True, "keep_when_insufficient": True, "reason": "same"}
        assert h.call({"hook": 1, "samples": group[:1]}, columns)["value"]["keep"] is False
        value = h.call({"hook": 2, "buffer": buffer, "num_samples": 2}, buffer_columns)["value"]
        assert value == {"taken": [3, 2], "left": [0, 1]}
        value = h.call({"hook": 3, "groups": [group, group]}, columns)["value"]
        assert value["changes"] == [{"at": [0, 1], "remove_sample": True}, {"at": [1, 1], "remove_sample": True}]


class Prompts:
    """The program's data set, for the asks of a host."""

    def __init__(self):
        self.next, self.back = 0, []

    def __call__(self, ask, arrays):
        if ask["what"] == "get_samples":
            groups = [[Sample(index=self.next + i)] for i in range(ask["count"])]
            self.next += len(groups)
            made, columns = records(groups)
            kept = Columns()
            kept.arrays = columns
            return {"groups": made}, kept
        if ask["what"] == "add_samples":
            self.back += ask["groups"]
            return {}, Columns()
        if ask["what"] == "num_prompts":
            return 50, Columns()
        if ask["what"] == "score":
            return {"score": 1 if ask["label"] else None, "reason": "no label"}, Columns()
        raise ValueError(f"no answer to {ask['what']}")


def test_a_rollout_function_and_its_data_source():
    prompts = Prompts()
    with host(("rollout", "rollout"), ("evaluate", "rollout"), ("rollout", "bare_rollout"), on_ask=prompts) as h:
        answer = h.call({"hook": 0, "rollout_id": 4})
        groups = samples_of(answer, "groups")
        assert [[sample.index for sample in group] for group in groups] == [[0], [1]]
        assert groups[0][0].tokens == list(range(20)) and groups[0][0].reward == 4
        assert answer["value"]["metrics"] == {"rollout/x": 50}
        assert [group[0]["index"] for group in prompts.back] == [2]
        value = h.call({"hook": 1, "rollout_id": 4})["value"]
        assert value["data"]["set"]["rewards"] == [0, 1] and value["data"]["set"]["truncated"] == [False, True]
        assert len(value["data"]["set"]["samples"]) == 2 and value["metrics"] == {"m": 1.5}
        assert samples_of(h.call({"hook": 2, "rollout_id": 8}), "groups")[0][0].index == 8


def test_all_samples_may_ask_the_program_from_inside_the_loop():
    groups, columns = records([[Sample(index=i)] for i in range(2)])
    with host(("all_samples", "all_samples"), on_ask=Prompts()) as h:
        value = h.call({"groups": groups}, columns)["value"]
        assert value["changes"] == [{"at": [0, 0], "metadata": {"groups": 2, "more": 0}}]


def test_a_data_source_of_ones_own():
    with host(("data_source", "DataSource"), ("rollout", "rollout")) as h:
        assert h.ready["problems"] == []
        h.call({"method": "load", "rollout_id": 20})
        assert samples_of(h.call({"method": "get_samples", "count": 1}), "groups")[0][0].index == 20
        assert samples_of(h.call({"hook": 1, "rollout_id": 1}), "groups")[1][0].index == 22
        assert samples_of(h.call({"method": "get_samples", "count": 1}), "groups")[0][0].index == 23
        assert h.call({"method": "length"})["value"] == {"length": 100}
        assert "error" not in h.call({"method": "save", "rollout_id": 2})


CLASSES = """
from slime.rollout.base_types import RolloutFnTrainOutput
from slime.utils.types import Sample

class Both:
    def __init__(self, args):
        self.steps = []
    async def __call__(self, args, rollout_id, data_source, evaluation=False):
        self.steps.append(rollout_id)
        if evaluation:
            return {"mine": {"rewards": self.steps}}
        return [[Sample(tokens=[1], response_length=1, reward=len(self.steps), metadata={"path": args.rollout_function_path})]]

class NoArguments:
    def __call__(self, args, rollout_id, data_source, evaluation=False):
        good, bad = Sample(group_index=3), Sample(group_index=4, reward=float("nan"))
        return RolloutFnTrainOutput(samples=[[good], [bad], 7, []])

class Silent:
    def __init__(self, args): pass

class Raises(NoArguments):
    def __init__(self, args): raise OSError("not today")

class Source:
    def __init__(self, args): pass
    def get_samples(self, count): return {}
    add_samples = save = load = get_samples

generate_rollout = Both
"""


def test_a_class_is_made_once_and_called_like_the_function(tmp_path):
    (tmp_path / "own.py").write_text(CLASSES)
    flags = {"rollout_function_path": "own.py", "eval_function_path": "own.Both"}
    with HostProcess([("rollout", "own.py"), ("evaluate", "own.Both")], tmp_path, flags) as h:
        assert h.ready["problems"] == []
        answer = h.call({"hook": 0, "rollout_id": 5})
        first = samples_of(answer, "groups")[0][0]
        assert first.reward == 1 and first.metadata["path"] == "own.py:Both"
        assert h.call({"hook": 1, "rollout_id": 6})["value"]["data"] == {"mine": {"rewards": [5, 6]}}


def test_a_group_that_cannot_be_told_costs_no_other_one(tmp_path):
    (tmp_path / "own.py").write_text(CLASSES)
    with HostProcess([("rollout", "own.NoArguments")], tmp_path) as h:
        groups = h.call({"rollout_id": 1})["value"]["groups"]
        assert isinstance(groups[0], list) and groups[1]["group_index"] == 4 and "float" in groups[1]["error"]
        assert "a list of samples is wanted, this is int" in groups[2]["error"] and groups[3] == []


def test_classes_that_cannot_be_used_are_problems(tmp_path):
    (tmp_path / "own.py").write_text(CLASSES)
    for hook, path, words in [
        ("rollout", "own.Silent", "the class has no __call__"),
        ("rollout", "own.Raises", "not today"),
        ("data_source", "own.Both", "the class has no get_samples; write `class DataSource: __init__(self, args), get_samples("),
    ]:
        with HostProcess([(hook, path)], tmp_path) as h:
            assert words in h.ready["problems"][0]["message"]


def test_what_a_data_source_returns_is_checked(tmp_path):
    (tmp_path / "own.py").write_text(CLASSES)
    with HostProcess([("data_source", "own.Source")], tmp_path) as h:
        assert "get_samples returns dict; it is a list of groups" in h.call({"method": "get_samples", "count": 1})["error"]["message"]
        assert h.call({"method": "buffer_length"})["value"] == {"length": -1}


def test_post_process_and_conversion():
    samples, columns = records(
        [Sample(tokens=[1, 2], response_length=1, reward=1), Sample(tokens=[3], response_length=1, reward=0)]
    )
    with host(("reward_post_process", "reward_post_process"), ("convert", "convert")) as h:
        value = h.call({"hook": 0, "samples": samples}, columns)["value"]
        assert value == {"raw_rewards": [1, 0], "rewards": [0.5, -0.5]}
        answer = h.call({"hook": 1, "samples": samples}, columns)
        data, arrays = answer["value"]["data"], answer["arrays"]
        assert data["names"] == ["a", "b"] and data["rewards"] == [1, 0]
        assert arrays[data["tokens"]["rows"]["$column"]].tolist() == [1, 2, 3]
        assert arrays[data["tokens"]["starts"]["$column"]].tolist() == [0, 2, 3]
        assert arrays[data["rollout_log_probs"]["rows"]["$column"]].tolist() == [-0.5, -0.25, -1.5]


def test_log_functions():
    samples, columns = records([Sample(index=1)])
    with host(("rollout_log", "log_rollout"), ("eval_log", "log_eval")) as h:
        call = {"rollout_id": 3, "samples": samples, "rollout_extra_metrics": {"a": 1}, "rollout_time": 0.5}
        assert h.call({"hook": 0, **call}, columns)["value"] == {"handled": True}
        call = {"rollout_id": 3, "data": {"set": {"rewards": [1], "samples": samples}}, "extra_metrics": {}}
        assert h.call({"hook": 1, **call}, columns)["value"] == {"handled": True}


def test_native_rewards_are_asked_of_the_program():
    record, columns = one_record(response="a", label="a")
    with host(("reward", "scores_natively"), on_ask=Prompts()) as h:
        assert h.call({"sample": record}, columns)["value"]["reward"] == {"waited": 1, "awaited": 1}
        assert {ask["rule"] for ask in h.asks} == {"math"}


def test_a_frame_larger_than_the_sockets_buffers():
    samples, columns = records([Sample(index=i, tokens=list(range(300_000))) for i in range(4)])
    with host(("sample_hook", "sample_hook")) as h:
        answers = h.finish(h.begin([{"sample": sample} for sample in samples], columns))
        for i, answer in enumerate(answers):
            (sample,) = samples_of({**answer, "value": {"all": [answer["value"]["sample"]]}}, "all")
            assert sample.index == i and len(sample.tokens) == 300_000 and sample.tokens[-1] == 299_999


def test_answers_that_are_ready_together_come_in_few_frames():
    record, columns = one_record(response="a", label="a")
    with host(("reward", "reward")) as h:
        frames = []
        take = h._take
        h._take = lambda kind, head, arrays: (frames.append(len(head.get("answers", []))), take(kind, head, arrays))
        h.finish(h.begin([{"sample": record} for _ in range(200)], columns))
        assert sum(frames) == 200 and sum(1 for count in frames if count) <= 20


def test_signs_of_life():
    with host(("reward", "reward")) as h:
        start = time.monotonic()
        h.wait_until(lambda: len(h.beats) >= 2 and h.beats[-1] > h.beats[0])
        assert h.beats == sorted(h.beats) and time.monotonic() - start < 10

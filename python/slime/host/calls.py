"""Each hook of the rollout's side: its arguments from a call, and the answer from what it returned.

A function of this file takes (host, hook, call, arrays) and returns (function without arguments, function of its result
and of the answer's columns). The result may be awaitable; the second one gets what came of it.
"""

import copy
import inspect
import math

from slime.host.frames import encode_json
from slime.host.records import changes, from_record, groups_from_records, groups_to_records, to_record
from slime.rollout.base_types import RolloutFnEvalOutput, RolloutFnTrainOutput
from slime.rollout.filter_hub.base_types import DynamicFilterOutput
from slime.rollout.generate_call import await_generate, is_cancelled_by_abort
from slime.rollout.other_forms import as_groups
from slime.rollout.text_samples import texts_alone, tokenise_text, tokenise_texts
from slime.turns import untrained_tokens, version_runs, watch
from slime.utils import sampler_record
from slime.utils.async_utils import run as run_coroutine
from slime.utils.types import Sample

__all__ = ["CALLS", "WrongResult"]


class WrongResult(TypeError):
    """A function returned something else than its hook returns."""


def _plain(value):
    return value.item() if hasattr(value, "item") and getattr(value, "size", 1) != 0 else value


def _number(value, what):
    value = _plain(value)
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, (int, float)):
        raise WrongResult(f"{what} is {type(value).__name__}; it is a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise WrongResult(f"{what} is {value}; it is a finite number")
    return value


def _reward(value, what="the reward"):
    """A finite number, or a record with one or more of them."""
    if isinstance(value, dict):
        for name, field in value.items():
            field = _plain(field)
            if isinstance(field, float) and not math.isfinite(field):
                raise WrongResult(f"{what}: its field {name} is {field}")
        return value
    return _number(value, what)


def _rewards(values, count):
    if not isinstance(values, (list, tuple)) and not hasattr(values, "tolist"):
        raise WrongResult(f"rewards of {count} samples are a list, not {type(values).__name__}")
    if len(values) != count:
        raise WrongResult(f"{len(values)} rewards for {count} samples")
    return [_reward(value, f"reward {i}") for i, value in enumerate(values)]


def generate(host, hook, call, arrays):
    sample = from_record(call["sample"], arrays)
    params = call["sampling_params"]
    extra = {"evaluation": call.get("evaluation", False)} if hook.takes("evaluation") else {}
    given, turns = list(sample.tokens), []
    prompt = copy.deepcopy(sample.prompt)  # functions append to a list of messages

    async def generated():
        args = sampler_record.of_evaluation(host.args) if call.get("evaluation", False) else host.args
        result = hook.function(args, sample, params, **extra)
        if not inspect.isawaitable(result):
            return result
        if not is_cancelled_by_abort(hook.function):
            return await result
        from slime.rollout.sglang_rollout import GenerateState

        return await await_generate(GenerateState(host.args), hook.function, sample, result)

    async def run():
        watch(turns)
        result = await generated()
        for made in texts_alone(result):
            await tokenise_text(host.args, made, prompt if made is sample else None)
        return result

    def record_of(made, columns, is_alone=True):
        record = to_record(made, columns)
        length = made.response_length
        if turns and isinstance(length, int) and 0 < length <= len(made.tokens):
            tokens = list(made.tokens)
            # What an earlier call drew was noted then.
            goes_on = call["sample"].get("response_length", 0) and tokens[: len(given)] == given
            start = min(call["sample"]["response_length"], length) if goes_on else 0
            mask = made.loss_mask
            has_mask = isinstance(mask, (list, tuple)) and len(mask) == length and any(mask)
            options = {"prompt": tokens[:-length], "loss_mask": mask if has_mask else None, "is_alone": is_alone}
            runs = version_runs(tokens[-length:], turns, start, **options)
            if runs is not None:
                record["version_runs"] = runs
        return record

    def lost(samples):
        """What engines sampled and none of the samples trains."""
        rows = []
        for made in samples:
            length = made.response_length
            if isinstance(length, int) and 0 < length <= len(made.tokens):
                mask = made.loss_mask
                is_mask = isinstance(mask, (list, tuple)) and len(mask) == length
                rows.append((list(made.tokens), len(made.tokens) - length, list(mask) if is_mask else None))
        count = untrained_tokens(rows, turns) if turns else 0
        return {"untrained_tokens": count} if count else {}

    def finish(result, columns):
        if isinstance(result, (list, tuple)):
            if not result or not all(isinstance(each, Sample) for each in result):
                kinds = sorted({type(each).__name__ for each in result})
                raise WrongResult(f"a list of {', '.join(kinds) or 'nothing'}; it is a Sample or a list of them")
            return {"samples": [record_of(each, columns, len(result) == 1) for each in result], **lost(result)}
        if not isinstance(result, Sample):
            raise WrongResult(f"{type(result).__name__} is returned; it is a Sample or a list of them")
        return {"sample": record_of(result, columns), **lost([result])}

    return run, finish


def sample_hook(host, hook, call, arrays):
    sample = from_record(call["sample"], arrays)
    given = {name: call.get(name) for name in ("rollout_id", "evaluation") if hook.takes(name)}

    def finish(result, columns):
        if result is not None and not isinstance(result, Sample):
            raise WrongResult(f"{type(result).__name__} is returned; it is a Sample or None")
        return {"sample": to_record(sample if result is None else result, columns)}

    return lambda: hook.function(host.args, sample, **given), finish


def reward(host, hook, call, arrays):
    if "sample" in call:
        record = call["sample"]
        sample = from_record(record, arrays)

        def finish(result, columns):
            value = _reward(result)
            changed = changes(sample, record, arrays, columns)
            return {"reward": value, "changes": changed} if changed else {"reward": value}

        return lambda: hook.function(host.args, sample), finish

    records = call["samples"]
    samples = groups_from_records(records, arrays)

    def finish_all(result, columns):
        value = {"rewards": _rewards(result, len(samples))}
        changed = _changed(samples, records, arrays, columns)
        return {**value, "changes": changed} if changed else value

    return lambda: hook.function(host.args, samples), finish_all


def _changed(groups, records, arrays, columns, place=()):
    """[{"at": [group, member, ...], ...changed fields}] of samples that are not what they were."""
    found = []
    for i, (member, record) in enumerate(zip(groups, records)):
        if isinstance(record, list):
            found += _changed(member, record, arrays, columns, place + (i,))
        else:
            changed = changes(member, record, arrays, columns)
            if changed:
                found.append({"at": list(place + (i,)), **changed})
    return found


def dynamic_filter(host, hook, call, arrays):
    records = call["samples"]
    samples = groups_from_records(records, arrays)

    def finish(result, columns):
        if not isinstance(result, DynamicFilterOutput):
            result = DynamicFilterOutput(keep=result)
        try:
            value = {"keep": bool(result.keep), "keep_when_insufficient": bool(result.keep_when_insufficient)}
        except Exception as error:
            raise WrongResult(f"a filter's answer is no truth value: {error}") from None
        if result.reason is not None:
            value["reason"] = str(result.reason)
        changed = _changed(samples, records, arrays, columns)
        return {**value, "changes": changed} if changed else value

    return lambda: hook.function(host.args, samples), finish


def buffer_filter(host, hook, call, arrays):
    buffer = groups_from_records(call["buffer"], arrays)
    place = {id(group): i for i, group in enumerate(buffer)}

    def finish(result, columns):
        if not isinstance(result, (list, tuple)) or any(id(group) not in place for group in result):
            raise WrongResult("a buffer filter returns a list of groups of the buffer that it got")
        left = [place[id(group)] for group in buffer if id(group) in place]
        taken = [place[id(group)] for group in result]
        return {"taken": taken, "left": [i for i in left if i not in set(taken)]}

    return lambda: hook.function(host.args, None, buffer, call["num_samples"]), finish


def sample_filter(host, hook, call, arrays):
    records = call["groups"]
    groups = groups_from_records(records, arrays)
    return (
        lambda: hook.function(host.args, groups),
        lambda result, columns: {"changes": _changed_by_identity(groups, records, arrays, columns)},
    )


def _changed_by_identity(groups, records, arrays, columns):
    """As _changed, where a function may have moved groups about: those that are still where they were."""
    if len(groups) != len(records):
        raise WrongResult(f"{len(records)} groups became {len(groups)}; set remove_sample on samples instead")
    return _changed(groups, records, arrays, columns)


def all_samples(host, hook, call, arrays):
    records = call["groups"]
    groups = groups_from_records(records, arrays)
    return (
        lambda: hook.function(host.args, groups, host.data_source()),
        lambda result, columns: {"changes": _changed_by_identity(groups, records, arrays, columns)},
    )


def data_source(host, hook, call, arrays):
    source, method = host.data_source(), call["method"]

    def finish(result, columns):
        if method == "get_samples":
            if not isinstance(result, (list, tuple)):
                raise WrongResult(f"get_samples returns {type(result).__name__}; it is a list of groups")
            return {"groups": groups_to_records(result, columns)}
        return {"length": int(result)} if method in ("length", "buffer_length") else {}

    ways = {
        "get_samples": lambda: as_groups(host.args, source.get_samples(call["count"])),
        "add_samples": lambda: source.add_samples(groups_from_records(call["groups"], arrays)),
        "save": lambda: source.save(call["rollout_id"]),
        "load": lambda: source.load(call["rollout_id"]),
        "length": lambda: len(source),
        "buffer_length": lambda: source.get_buffer_length() if hasattr(source, "get_buffer_length") else -1,
    }
    return ways[method], finish


def _metrics(metrics):
    return {name: _plain(value) for name, value in (metrics or {}).items()}


def _group_record(group, columns):
    """A list of records; of a group that cannot be told, why, and which it is: it costs no other one."""
    try:
        records = groups_to_records(group, columns)
        encode_json(records)
        return records
    except Exception as error:
        first = group
        while isinstance(first, (list, tuple)) and first:
            first = first[0]
        number = getattr(first, "group_index", None)
        return {"error": f"{type(error).__name__}: {error}", "group_index": number if isinstance(number, int) else None}


def rollout(host, hook, call, arrays):
    source = host.data_source()

    def finish(result, columns):
        output = result if isinstance(result, RolloutFnTrainOutput) else RolloutFnTrainOutput(samples=result)
        if not isinstance(output.samples, (list, tuple)):
            raise WrongResult(f"{type(result).__name__} is returned; it is RolloutFnTrainOutput or a list of groups")
        groups = [_group_record(group, columns) for group in output.samples]
        if output.on_accepted is not None:
            host.call_behind_answer(output.on_accepted)
        return {"groups": groups, "metrics": _metrics(output.metrics)}

    def run():
        result = hook.function(host.args, call["rollout_id"], source, evaluation=False)
        texts = texts_alone(result.samples if isinstance(result, RolloutFnTrainOutput) else result)
        if texts:
            run_coroutine(tokenise_texts(host.args, texts))
        return result

    async def run_and_tokenise():
        result = await hook.function(host.args, call["rollout_id"], source, evaluation=False)
        await tokenise_texts(
            host.args, texts_alone(result.samples if isinstance(result, RolloutFnTrainOutput) else result)
        )
        return result

    return run_and_tokenise if hook.is_coroutine else run, finish


def evaluate(host, hook, call, arrays):
    source = host.data_source()

    def finish(result, columns):
        output = result if isinstance(result, RolloutFnEvalOutput) else RolloutFnEvalOutput(data=result)
        if not isinstance(output.data, dict):
            raise WrongResult(f"{type(result).__name__} is returned; it is RolloutFnEvalOutput or a dictionary")
        data = {}
        for name, each in output.data.items():
            data[name] = {"rewards": [_number(value, f"{name}: a reward") for value in each["rewards"]]}
            if each.get("truncated") is not None:
                data[name]["truncated"] = [bool(value) for value in each["truncated"]]
            if each.get("samples") is not None:
                data[name]["samples"] = groups_to_records(each["samples"], columns)
        return {"data": data, "metrics": _metrics(output.metrics)}

    args = sampler_record.of_evaluation(host.args)
    return lambda: hook.function(args, call["rollout_id"], source, evaluation=True), finish


def _names_beside(function):
    """The names of the module that defines a function or class."""
    function = inspect.unwrap(function)
    if hasattr(function, "__globals__"):
        return function.__globals__
    methods = [each for each in getattr(function, "__dict__", {}).values() if inspect.isfunction(each)]
    return methods[0].__globals__ if methods else {}


def weight_update(host, hook, call, arrays):
    """before_weight_update and after_weight_update of the rollout function's module, where it has them."""
    function = _names_beside(hook.function).get(call["moment"])
    if not callable(function):
        return lambda: False, lambda result, columns: {"is_there": False}
    given = {"args": host.args, "rollout_id": call["rollout_id"], "policy_version": call["version"]}
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
    named = {name: value for name, value in given.items() if takes_all or any(each.name == name for each in parameters)}
    return lambda: function(**named), lambda result, columns: {"is_there": True}


def post_write(host, hook, call, arrays):
    return (
        lambda: hook.function(host.args, call["version_dir"], []),
        lambda result, columns: {},
    )


def reward_post_process(host, hook, call, arrays):
    samples = groups_from_records(call["samples"], arrays)

    def finish(result, columns):
        if not isinstance(result, (list, tuple)) or len(result) != 2:
            raise WrongResult("two lists are returned: raw rewards and rewards")
        raw, final = (_rewards(values, len(samples)) for values in result)
        return {"raw_rewards": raw, "rewards": [_number(value, "a reward") for value in final]}

    return lambda: hook.function(host.args, samples), finish


def convert(host, hook, call, arrays):
    samples = groups_from_records(call["samples"], arrays)

    def finish(result, columns):
        if not isinstance(result, dict):
            raise WrongResult(f"{type(result).__name__} is returned; it is a dictionary of lists")
        missing = [name for name in ("tokens", "response_lengths", "rewards") if name not in result]
        if missing:
            raise WrongResult(f"the dictionary lacks {', '.join(missing)}")
        return {"data": {name: _ragged(values, columns) for name, values in result.items()}}

    return lambda: hook.function(host.args, samples), finish


def _ragged(values, columns):
    """Lists of lists of integers or numbers as one column and the place where each begins."""
    from array import array

    rows = [value.tolist() if hasattr(value, "tolist") else value for value in values]
    if not rows or not all(isinstance(row, (list, tuple)) and all(type(x) in (int, float) for x in row) for row in rows):
        return rows
    is_integer = all(type(x) is int for row in rows for x in row)
    starts, numbers = array("q", [0]), array("q" if is_integer else "d")
    for row in rows:
        numbers.extend(row)
        starts.append(len(numbers))
    return {"rows": columns.add(numbers), "starts": columns.add(starts)}


def rollout_log(host, hook, call, arrays):
    samples = groups_from_records(call["samples"], arrays)
    return (
        lambda: hook.function(
            call["rollout_id"], host.args, samples, call.get("rollout_extra_metrics"), call.get("rollout_time")
        ),
        lambda result, columns: {"handled": bool(result)},
    )


def eval_log(host, hook, call, arrays):
    data = {
        name: {**each, **({"samples": groups_from_records(each["samples"], arrays)} if "samples" in each else {})}
        for name, each in call["data"].items()
    }
    return (
        lambda: hook.function(call["rollout_id"], host.args, data, call.get("extra_metrics")),
        lambda result, columns: {"handled": bool(result)},
    )


CALLS = {
    "generate": generate,
    "sample_hook": sample_hook,
    "reward": reward,
    "dynamic_filter": dynamic_filter,
    "buffer_filter": buffer_filter,
    "sample_filter": sample_filter,
    "all_samples": all_samples,
    "data_source": data_source,
    "rollout": rollout,
    "evaluate": evaluate,
    "weight_update": weight_update,
    "post_write": post_write,
    "reward_post_process": reward_post_process,
    "convert": convert,
    "rollout_log": rollout_log,
    "eval_log": eval_log,
}

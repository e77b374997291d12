"""Data sources, filters, loss masks, boxes: against the golden cases."""

import asyncio
import json
import math
from argparse import Namespace

import pytest
from golden_cases import golden
from slime.rollout.data_source import RolloutDataSourceWithBuffer
from slime.rollout.filter_hub.base_types import DynamicFilterOutput, call_dynamic_filter, should_drop_dynamic_filter_output
from slime.rollout.filter_hub.dynamic_sampling_filters import check_reward_nonzero_std
from slime.rollout.rm_hub import async_rm, batched_async_rm, math_dapo_utils, math_utils
from slime.utils.data import Dataset, read_file
from slime.utils.mask_utils import MultiTurnLossMaskGenerator, get_response_lengths
from slime.utils.misc import should_run_periodic_action
from slime.utils.types import Sample


def _named(name):
    cases = golden(name)
    return {"argvalues": cases, "ids": [case["name"] for case in cases]}


def _source_args(case, folder):
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"input": str(i)}) + "\n" for i in range(case["params"]["dataset_size"])))
    return Namespace(
        rollout_global_dataset=True,
        prompt_data=str(path),
        rollout_max_prompt_len=None,
        apply_chat_template=False,
        apply_chat_template_kwargs=None,
        multimodal_keys=None,
        hf_checkpoint=None,
        input_key="input",
        label_key=None,
        metadata_key="metadata",
        tool_key=None,
        rollout_seed=case["params"]["seed"],
        rollout_shuffle=case["params"]["shuffle"],
        n_samples_per_prompt=case["params"]["n_samples_per_prompt"],
        buffer_filter_path=None,
        save=str(folder),
        load=str(folder),
    )


@pytest.mark.parametrize("case", **_named("data_source"))
def test_data_source(case, tmp_path):
    args = _source_args(case, tmp_path)
    source, groups = RolloutDataSourceWithBuffer(args), []
    for (op, count), expected in zip(case["inputs"]["ops"], case["expected"]["trace"]):
        if op == "get":
            groups = source.get_samples(count)
            assert [
                {
                    "prompt": int(group[0].prompt),
                    "group_index": group[0].group_index,
                    "indices": [sample.index for sample in group],
                }
                for group in groups
            ] == expected["groups"]
        elif op == "requeue":
            source.add_samples(groups[:count])
        else:
            source.save(0)
            source = RolloutDataSourceWithBuffer(args)
            source.load(0)
        for name, value in expected.get("state", {}).items():
            assert (len(source.buffer) if name == "buffer" else getattr(source, name)) == value, name


@pytest.mark.parametrize("case", **_named("dataset_shuffle"))
def test_order_of_an_epoch(case, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"text": "{i}"}}\n' for i in range(case["inputs"]["num_samples"])))
    data = Dataset(str(path), None, None, None, seed=case["params"]["seed"])
    data.shuffle(case["params"]["epoch"])
    assert [int(sample.prompt) for sample in data] == case["expected"]["permutation"]


@pytest.mark.parametrize("case", **_named("dataset_slicing"))
def test_a_range_of_rows(case, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"row": {i}}}\n' for i in range(case["params"]["num_rows"])))
    if "error" in case["expected"]:
        with pytest.raises((ValueError, FileNotFoundError)):
            list(read_file(str(path) + case["inputs"]["suffix"]))
        return
    assert [row["row"] for row in read_file(str(path) + case["inputs"]["suffix"])] == case["expected"]["rows"]


@pytest.mark.parametrize("case", **_named("dynamic_filter"))
def test_dynamic_filter(case):
    if "rewards" not in case["inputs"]:
        inputs, expected = {**case["params"], **case["inputs"]}, case["expected"]
        output = DynamicFilterOutput(inputs["keep"], keep_when_insufficient=inputs["keep_when_insufficient"])
        sizes = {name: inputs[name] for name in ("remaining_batch_size", "target_data_size")}
        assert should_drop_dynamic_filter_output(output, **sizes) is expected["drop"]
        return
    key = case["params"]["reward_key"]
    samples = [Sample(reward={key: reward} if key else reward) for reward in case["inputs"]["rewards"]]
    output = check_reward_nonzero_std(Namespace(reward_key=key), samples)
    assert (output.keep, output.reason) == (case["expected"]["keep"], case["expected"]["reason"])


def test_a_filter_may_return_a_truth_value_and_see_executions_of_several_samples():
    assert call_dynamic_filter(None).keep and not call_dynamic_filter(lambda: False).keep
    group = [[Sample(reward=1), Sample(reward=1)], [Sample(reward=0)]]
    assert check_reward_nonzero_std(Namespace(reward_key=None), group).keep


BOXES = {
    "last_boxed_only_string": math_utils.last_boxed_only_string,
    "dapo_last_boxed_only_string": math_dapo_utils.last_boxed_only_string,
    "extract_answer": math_utils.extract_answer,
}


@pytest.mark.parametrize("case", [case for case in golden("reward_string_helpers") if case["params"]["function"] in BOXES])
def test_boxes(case):
    assert BOXES[case["params"]["function"]](case["inputs"]["value"]) == case["expected"]["result"]


class CharacterTokenizer:
    """The tokenizer and the chat templates of tests/golden/README.md."""

    SPECIALS = {
        "<|im_start|>": 1,
        "<|im_end|>": 2,
        "<think>": 3,
        "</think>": 4,
        "<\uff5cUser\uff5c>": 5,
        "<\uff5cAssistant\uff5c>": 6,
    }

    def __init__(self, template):
        self.template = template

    def get_added_vocab(self):
        return {} if self.template != "distill" else self.SPECIALS

    def __call__(self, text, add_special_tokens=False, return_offsets_mapping=False):
        ids, offsets, i = [], [], 0
        while i < len(text):
            special = next((word for word in self.SPECIALS if text.startswith(word, i)), None)
            ids.append(self.SPECIALS[special] if special else ord(text[i]))
            offsets.append((i, i + len(special or "x")))
            i = offsets[-1][1]
        return {"input_ids": ids, **({"offset_mapping": offsets} if return_offsets_mapping else {})}

    def decode(self, ids):
        names = {number: word for word, number in self.SPECIALS.items()}
        return "".join(names.get(i, chr(i)) for i in ids)

    def apply_chat_template(self, messages, tokenize=True, tools=None, add_generation_prompt=False, **kwargs):
        text = TEMPLATES[self.template](messages, tools, add_generation_prompt)
        return self(text)["input_ids"] if tokenize else text


def _turn(role, content):
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def _chatml_default_system(messages, tools, generate):
    own = messages[0]["content"] if messages[0]["role"] == "system" else None
    text = ""
    if own is None or tools:
        block = "SYS" if own is None else own
        text = _turn("system", block + (f"\nT:{json.dumps(tools)}" if tools else ""))
    rest = messages[1:] if own is not None and tools else messages
    text += "".join(_turn(message["role"], message["content"]) for message in rest)
    return text + ("<|im_start|>assistant\n" if generate else "")


def _chatml(messages, show_assistant):
    text, i = "", 0
    while i < len(messages):
        role, end = messages[i]["role"], i + 1
        while role == "tool" and end < len(messages) and messages[end]["role"] == "tool":
            end += 1
        if role == "tool":
            text += "<|im_start|>user" + "".join(f"\n[tool]{each['content']}" for each in messages[i:end]) + "<|im_end|>\n"
        elif role == "assistant":
            text += _turn(role, show_assistant(i, messages[i]["content"]))
        else:
            text += _turn(role, messages[i]["content"])
        i = end
    return text


def _chatml_plain(messages, tools, generate):
    return _chatml(messages, lambda i, content: content) + ("<|im_start|>assistant\n" if generate else "")


def _chatml_think(messages, tools, generate):
    last_user = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=-1)

    def show(i, content):
        thought, mark, answer = content.partition("</think>")
        thought, answer = (thought.replace("<think>", "").strip("\n"), answer) if mark else ("", content)
        answer = answer.lstrip("\n")
        return f"<think>\n{thought}\n</think>\n\n{answer}" if i > last_user else answer

    return _chatml(messages, show) + ("<|im_start|>assistant\n<think>\n" if generate else "")


def _distill(messages, tools, generate):
    names = {"user": "<\uff5cUser\uff5c>", "assistant": "<\uff5cAssistant\uff5c>"}
    text = "".join(names.get(message["role"], "") + message["content"] for message in messages)
    return text + (names["assistant"] if generate else "")


TEMPLATES = {
    "chatml_default_system": _chatml_default_system,
    "chatml_plain": _chatml_plain,
    "chatml_think": _chatml_think,
    "distill": _distill,
}


@pytest.mark.parametrize("case", **_named("loss_masks"))
def test_loss_mask(case):
    maker = MultiTurnLossMaskGenerator(CharacterTokenizer(case["params"]["template"]), case["params"]["loss_mask_type"])
    ids, mask = maker.get_loss_mask(case["inputs"]["messages"], tools=case["inputs"]["tools"])
    expected = case["expected"]
    assert ids == expected["token_ids"]
    assert mask == expected["loss_mask"]
    assert maker.get_text_from_loss_mask(ids, mask) == expected["selected_texts"]
    assert maker.get_response_lengths([mask]) == [expected["response_length"]]


# What the original makes of these is not the template's rendering of the whole conversation.
CONTRADICTING = ("qwen3_think_template_multi_turn", "distill_qwen_only_first_and_last")


@pytest.mark.parametrize("case", **_named("loss_masks"))
def test_loss_mask_of_any_template(case):
    """Where the template rewrites no earlier turn, `auto` finds what the names were made for."""
    maker = MultiTurnLossMaskGenerator(CharacterTokenizer(case["params"]["template"]), "auto")
    try:
        ids, mask = maker.get_loss_mask(case["inputs"]["messages"], tools=case["inputs"]["tools"])
    except ValueError as error:
        assert "rewrites earlier messages" in str(error) and case["params"]["template"] == "chatml_think"
        return
    if case["name"] in CONTRADICTING:
        return
    assert (ids, mask) == (case["expected"]["token_ids"], case["expected"]["loss_mask"])


@pytest.mark.parametrize("case", **_named("response_length_from_mask"))
def test_response_length(case):
    assert get_response_lengths([case["inputs"]["loss_mask"]]) == [case["expected"]["response_length"]]


@pytest.mark.parametrize(
    "case", [c for c in golden("misc_metrics") if c["params"]["function"] == "should_run_periodic_action"]
)
def test_periodic_action(case):
    p = case["params"]
    run = should_run_periodic_action(
        case["inputs"]["rollout_id"], p["interval"], p["num_rollout_per_epoch"], p["num_rollout"]
    )
    assert run is case["expected"]["run"]


def test_rewards_are_asked_of_the_program(tmp_path, monkeypatch):
    """A child answers line by line; here it counts the letters."""
    program = tmp_path / "slime"
    program.write_text(
        "#!/usr/bin/env python3\n"
        "import json, sys\n"
        "assert sys.argv[1:3] == ['score', '--rm-type']\n"
        "for line in sys.stdin:\n"
        "    record = json.loads(line)\n"
        "    if record['label'] is None: answer = {'score': None, 'reason': 'no label'}\n"
        "    else: answer = {'score': len(record['response']), 'reward': {'rule': sys.argv[3], 'score': 1}}\n"
        "    if sys.argv[3] == 'math': answer.pop('reward', None)\n"
        "    print(json.dumps(answer), flush=True)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("SLIME_BINARY", str(program))
    args = Namespace(custom_rm_path=None, rm_type="math")
    samples = [Sample(response="x" * n, label="1") for n in (3, 0, 5)]
    assert asyncio.run(batched_async_rm(args, samples)) == [3, 0, 5]
    assert math_dapo_utils.compute_score("a", "1", strict_box_verify=True)["rule"] == "dapo_box"
    with pytest.raises(ValueError, match="no label"):
        asyncio.run(async_rm(args, Sample(response="x")))
    own = Sample(response="x", label="1", metadata={"rm_type": "boxed_dapo"})
    assert asyncio.run(async_rm(args, own))["rule"] == "boxed_dapo"
    with pytest.raises(NotImplementedError, match="no rule 'maths'"):
        asyncio.run(async_rm(Namespace(custom_rm_path=None, rm_type="maths"), Sample()))
    assert not math.isnan(asyncio.run(async_rm(Namespace(custom_rm_path=None, rm_type="random"), Sample())))

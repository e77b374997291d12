"""Runs whose samples a user's Python function draws, through the run's HTTP API."""

import json
import re
import shutil

import pytest
from conftest import ROOT, metric, run_slime, train_command

pytestmark = pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")

STOCK = "from slime.rollout.sglang_rollout import generate\n"

# A turn of three tokens, what a tool says, another turn: in the shape of the original's examples.
TURNS = """
from slime.utils.http_utils import post
from slime.utils.types import Sample

TOOL = [11, 12, 13, 14]

async def generate(args, sample, sampling_params, evaluation=False):
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    prompt = list(sample.tokens)
    response, mask, log_probs, versions = [], [], [], []
    for turn in range(2):
        output = await post(url, {"input_ids": prompt + response, "return_logprob": True,
                                  "sampling_params": {**sampling_params, "max_new_tokens": 3, "ignore_eos": True}})
        meta = output["meta_info"]
        if meta["finish_reason"]["type"] == "abort":
            sample.status = Sample.Status.ABORTED
            return sample
        drawn = meta["output_token_logprobs"]
        response += [entry[1] for entry in drawn]
        log_probs += [entry[0] for entry in drawn]
        mask += [1] * len(drawn)
        sample.weight_versions.append(meta["weight_version"])
        if turn == 0:
            response, mask, log_probs = response + TOOL, mask + [0] * 4, log_probs + [0.0] * 4
    sample.tokens, sample.response_length = prompt + response, len(response)
    sample.loss_mask, sample.rollout_log_probs, sample.response = mask, log_probs, "two turns"
    sample.status = Sample.Status.COMPLETED
    sample.metadata["evaluation"] = evaluation
    sample.tool_calls = 1
    return sample

async def reward(args, sample, **kwargs):
    return sample.tool_calls + sample.index % 4
"""


def generated(work, run_dir, code, *, rollouts=2, extra=(), reward=True, async_=False):
    """A run in whose folder of command my_generate.py has `code`."""
    folder = work / f"{run_dir.name}-code"
    folder.mkdir()
    (folder / "my_generate.py").write_text(code)
    flags = ["--custom-generate-function-path", "my_generate.py", *extra]
    command = train_command(work, run_dir, rollouts=rollouts, extra=flags)
    if not reward:
        at = command.index("--rm-type")
        del command[at : at + 2]
    if async_:
        command[1] = "train-async"
    return run_slime(command, cwd=folder)


def samples(run_dir, step):
    lines = (run_dir / "rollouts" / f"step_{step:06d}.jsonl").open()
    return [json.loads(line) for line in lines]


def fates(run_dir):
    return [json.loads(line.split(" ", 1)[1]) for line in (run_dir / "ledger.jsonl").read_text().splitlines()]


def failed_reasons(run_dir):
    return [fate["reason"] for fate in fates(run_dir) if fate.get("fate") == "failed"]


def test_the_example_of_the_documentation_runs(work):
    (code,) = re.findall(r"```python\n(# my_generate.py.*?)```", (ROOT / "docs" / "plugins.md").read_text(), re.S)
    assert len(code.splitlines()) == 5
    run_dir = work / "documented-generate"
    done = generated(work, run_dir, code)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(metric(run_dir, "train/loss")) == 2


def test_turns_with_a_tool_train_with_their_masks_versions_and_rewards(work):
    run_dir = work / "turns"
    (work / "turns.yaml").write_text("max_turns: 2\n")
    extra = ["--custom-rm-path", "my_generate.py:reward", "--custom-config-path", str(work / "turns.yaml")]
    code = TURNS.replace("range(2)", "range(args.max_turns)")
    done = generated(work, run_dir, code, extra=extra, reward=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(metric(run_dir, "train/loss")) == 2
    for step in range(2):
        drawn = samples(run_dir, step)
        assert len(drawn) == 16
        for sample in drawn:
            assert sample["loss_mask"] == [1, 1, 1, 0, 0, 0, 0, 1, 1, 1]
            assert sample["tokens"][-7:-3] == [11, 12, 13, 14]
            assert sample["weight_versions"] == [[step, 3], [-1, 4], [step, 3]]
            assert sample["reward"] == 1 + sample["index"] % 4
            assert sample["user_fields"]["extra"] == {"tool_calls": 1}
            # What the engine drew is what the trainer computes, tool tokens between them or not.
            for mask, ours, theirs in zip(
                sample["loss_mask"], sample["train_log_probs"], sample["rollout_log_probs"]
            ):
                assert not mask or abs(ours - theirs) < 1e-3


def test_one_sample_may_become_several(work):
    code = STOCK.replace("generate", "generate as one_turn") + (
        "import copy\n"
        "async def generate(args, sample, sampling_params):\n"
        "    first, second = sample, copy.deepcopy(sample)\n"
        "    first = await one_turn(args, first, dict(sampling_params))\n"
        "    second = await one_turn(args, second, dict(sampling_params))\n"
        "    for part in (first, second):\n"
        "        part.rollout_id, part.reward = sample.index, float(part is first)\n"
        "    return [first, second]\n"
    )
    run_dir = work / "fan-out"
    done = generated(work, run_dir, code, reward=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(metric(run_dir, "train/loss")) == 2
    drawn = samples(run_dir, 0)
    assert len(drawn) == 32
    assert [sample["rollout_id"] for sample in drawn] == [sample["index"] for sample in drawn]
    assert [sample["reward"] for sample in drawn] == [1.0, 0.0] * 16


def test_a_list_is_scored_in_one_call_as_far_as_it_has_no_reward(work):
    code = STOCK.replace("generate", "generate as one_turn") + (
        "import copy\n"
        "async def generate(args, sample, sampling_params):\n"
        "    sample = await one_turn(args, sample, dict(sampling_params))\n"
        "    if sample.index % 4 == 0: return [sample]\n"
        "    if sample.index % 4 == 1: return sample\n"
        "    parts = [sample, copy.deepcopy(sample), copy.deepcopy(sample)]\n"
        "    parts[1].reward = 9.0\n"
        "    return parts\n"
        "async def reward(args, samples, **kwargs):\n"
        "    if not isinstance(samples, list): return 0.5\n"
        "    return [10.0 * len(samples) + i for i in range(len(samples))]\n"
    )
    run_dir = work / "list-rewards"
    done = generated(work, run_dir, code, reward=False, extra=["--custom-rm-path", "my_generate.py:reward"])
    assert done.returncode == 0, done.stdout + done.stderr
    by_index = {}
    for sample in samples(run_dir, 0):
        by_index.setdefault(sample["index"] % 4, []).append(sample["reward"])
    assert set(by_index[0]) == {10} and set(by_index[1]) == {0.5}
    assert by_index[2] == by_index[3] == [20, 9, 21] * 4


MISDEEDS = {
    "raise": ("raise ValueError('no such luck')", "ValueError: no such luck"),
    "exit": ("os._exit(3)", "ended with exit code 3"),
    "hang": ("await asyncio.sleep(1000)", "took longer than 10 s"),
    "nothing": ("return None", "it is a Sample or a list of them"),
    "mask": ("sample.loss_mask = [1]; return sample", "Sample.loss_mask has 1 entries for 0 response tokens"),
    "ids": ("sample.tokens, sample.response_length = [5, 10**6], 1; return sample", "Sample.tokens[1] is 1000000"),
    "nan": (
        "sample.tokens, sample.response_length, sample.rollout_log_probs = [5, 6], 1, [float('nan')]; return sample",
        "Sample.rollout_log_probs[0] is",
    ),
    "ended": ("sample.status = Sample.Status.FAILED; return sample", "the function set its status to failed"),
}


@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_a_misdeed_costs_its_own_sample(work, misdeed):
    statement, reason = MISDEEDS[misdeed]
    code = (
        "import asyncio, os\n"
        "from slime.rollout.sglang_rollout import generate as one_turn\n"
        "from slime.utils.types import Sample\n"
        "async def generate(args, sample, sampling_params):\n"
        f"    if sample.index in (2, 21): {statement}\n"
        "    return await one_turn(args, sample, sampling_params)\n"
    )
    run_dir = work / f"generate-{misdeed}"
    # Conversations that waited when another one ended their host are gone on with, which they may be: they pay for nothing.
    extra = ["--generate-timeout-seconds", "10", "--plugin-repeat-lost-calls"]
    done = generated(work, run_dir, code, rollouts=3, extra=extra)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(metric(run_dir, "train/loss")) == 3
    reasons = failed_reasons(run_dir)
    assert len(reasons) == 2 and all("generate: " in each and reason in each for each in reasons), reasons


def test_over_sampling_stops_those_that_are_not_needed(work):
    code = (
        "import asyncio\n" + STOCK.replace("generate", "generate as one_turn") + "\n"
        "async def generate(args, sample, sampling_params):\n"
        "    if sample.group_index == 1: await asyncio.sleep(1000)\n"
        "    return await one_turn(args, sample, sampling_params)\n"
    )
    run_dir = work / "over-sampling"
    done = generated(work, run_dir, code, rollouts=1, extra=["--over-sampling-batch-size", "6"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert 1 not in {sample["group_index"] for sample in samples(run_dir, 0)}
    assert len(metric(run_dir, "train/loss")) == 1


PARTIAL = """
import asyncio
from slime.rollout.sglang_rollout import GenerateState, generate as one_turn
from slime.utils.types import Sample

drawn, ended = [], []

async def generate(args, sample, sampling_params):
    state = GenerateState(args)
    while sample.group_index > 4 and len(ended) < 4:  # in the second step group 1 is done first
        await asyncio.sleep(0.01)
    while sample.group_index != 1 and len(drawn) < 4:  # nobody is done before group 1 has begun
        await asyncio.sleep(0.01)
    if sample.group_index == 1 and sample.response_length == 0:
        sample = await one_turn(args, sample, {**sampling_params, "max_new_tokens": 2, "ignore_eos": True})
        drawn.append(sample.index)
        while not state.aborted:
            await asyncio.sleep(0.01)
        sample.status = Sample.Status.ABORTED
        return sample
    assert not state.aborted
    sample.metadata["had"] = sample.response_length
    sample = await one_turn(args, sample, {**sampling_params, "ignore_eos": True})
    if sample.group_index == 1:
        ended.append(sample.index)
    return sample
"""


def test_a_partial_rollout_goes_on_with_what_they_returned(work):
    run_dir = work / "generate-partial"
    extra = ["--over-sampling-batch-size", "5", "--partial-rollout"]
    done = generated(work, run_dir, PARTIAL, rollouts=2, extra=extra)
    assert done.returncode == 0, done.stdout + done.stderr
    later = [sample for sample in samples(run_dir, 1) if sample["group_index"] == 1]
    assert len(later) == 4
    for sample in later:
        assert sample["metadata"]["had"] == 2 and sample["response_length"] == 6
        assert sample["weight_versions"] == [[0, 2], [1, 4]]


def test_asynchronous_training_draws_through_the_door_while_weights_change(work):
    run_dir = work / "async-generate"
    extra = ["--custom-rm-path", "my_generate.py:reward"]
    done = generated(work, run_dir, TURNS, rollouts=4, extra=extra, reward=False, async_=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(metric(run_dir, "train/loss")) == 4
    for step in range(4):
        for sample in samples(run_dir, step):
            runs = sample["weight_versions"]
            assert sum(count for _, count in runs) == 10 and [-1, 4] in runs
            assert all(version in range(-1, 4) for version, _ in runs)


def test_evaluation_is_drawn_by_the_set_s_own_function(work):
    run_dir = work / "evaluated-generate"
    code = TURNS + (
        "async def of_evaluation(args, sample, sampling_params, evaluation=False):\n"
        "    sample = await generate(args, sample, sampling_params, evaluation)\n"
        "    sample.reward = 7.0 if sample.metadata['evaluation'] else 0.0\n"
        "    return sample\n"
    )
    sets = {"eval": {"datasets": [{"name": name, "path": str(work / "data" / "test.jsonl")} for name in ("own", "all")]}}
    sets["eval"]["datasets"][0]["custom_generate_function_path"] = "my_generate.of_evaluation"
    config = work / "generate-eval.yaml"
    config.write_text(json.dumps(sets))
    extra = ["--custom-rm-path", "my_generate.py:reward", "--eval-config", str(config), "--eval-interval", "1"]
    done = generated(work, run_dir, code, rollouts=1, extra=extra, reward=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert metric(run_dir, "eval/own")[-1] == 7
    assert 1 <= metric(run_dir, "eval/all")[-1] <= 4


AGENT = """
from slime.agent.adapters import OpenAIAdapter
from slime.agent.aiohttp_threaded import run_app_in_thread
from slime.utils.http_utils import post

class Bytes:
    eos_token = "<|im_end|>"
    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": list(text.encode())}
    def decode(self, ids, skip_special_tokens=False):
        return bytes(i for i in ids if i < 256).decode("utf-8", "replace")
    def apply_chat_template(self, messages, tools=None, tokenize=True, add_generation_prompt=False):
        text = "".join(f"{each['role']}: {each['content']}\\n" for each in messages) + "assistant:" * add_generation_prompt
        return self(text)["input_ids"] if tokenize else text

served = None

async def generate(args, sample, sampling_params):
    global served
    if served is None:
        adapter = OpenAIAdapter(tokenizer=Bytes(), sglang_url=f"http://{args.sglang_router_ip}:{args.sglang_router_port}")
        served = adapter, run_app_in_thread(adapter.app, host="127.0.0.1")
    adapter, handle = served
    sid = f"{args.my_run}-{sample.index}"
    adapter.open_session(sid, sampling_defaults=sampling_params)
    messages = [{"role": "user", "content": "2+2"}]
    for turn in range(2):
        body = {"model": "slime-actor", "messages": messages, "max_tokens": 3}
        answer = await post(f"http://127.0.0.1:{handle.port}/v1/chat/completions", body, max_retries=1,
                            headers={"Authorization": f"Bearer {sid}"})
        messages += [answer["choices"][0]["message"], {"role": "user", "content": "go on"}]
    return await adapter.finish_session(sid, base_sample=sample, reward=1.0)
"""


def test_agents_of_the_kit_come_through_the_door(work):
    run_dir = work / "agents"
    done = generated(work, run_dir, AGENT, extra=["--my-run", "first"], reward=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(metric(run_dir, "train/loss")) == 2
    assert metric(run_dir, "rollout/untrained_sampled_tokens") == [0, 0]
    for step in range(2):
        for sample in samples(run_dir, step):
            versions = [version for version, count in sample["weight_versions"] for _ in range(count)]
            assert sample["reward"] == 1.0 and set(versions) <= {-1, step}
            for mask, version, ours, theirs in zip(
                sample["loss_mask"], versions, sample["train_log_probs"], sample["rollout_log_probs"]
            ):
                assert not mask or (version == step and abs(ours - theirs) < 1e-3)


def test_a_row_may_name_its_task_by_a_number(work):
    rows = work / "numbered.jsonl"
    rows.write_text("".join(json.dumps({"index": 10 + i}) + "\n" for i in range(8)))
    code = STOCK.replace("generate\n", "generate as draw\n") + (
        "async def generate(args, sample, sampling_params):\n"
        "    sample = await draw(args, sample, sampling_params)\n"
        "    sample.reward = float(int(sample.prompt))\n"
        "    return sample\n"
    )
    run_dir = work / "numbered"
    folder = work / "numbered-code"
    folder.mkdir()
    (folder / "my_generate.py").write_text(code)
    command = train_command(work, run_dir, rollouts=1, extra=["--custom-generate-function-path", "my_generate.py"])
    for flag, value in (("--prompt-data", str(rows)), ("--input-key", "index")):
        command[command.index(flag) + 1] = value
    for flag in ("--label-key", "--rm-type"):
        at = command.index(flag)
        del command[at : at + 2]
    command.remove("--apply-chat-template")
    done = run_slime(command, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {sample["reward"] for sample in samples(run_dir, 0)} <= set(range(10, 18))


@pytest.mark.parametrize(
    "extra, sentence",
    [
        (["--deterministic-schedule"], "--deterministic-schedule and --custom-generate-function-path"),
        (["--generate-timeout-seconds", "0"], "--generate-timeout-seconds 0: should be between"),
    ],
)
def test_what_cannot_be_together_is_refused(work, extra, sentence):
    run_dir = work / f"refused{extra[0]}"
    done = generated(work, run_dir, STOCK, extra=extra, async_=True)
    assert done.returncode == 2, done.stdout + done.stderr
    assert sentence in done.stderr


def test_a_run_without_any_reward_says_so(work):
    run_dir = work / "no-reward"
    done = generated(work, run_dir, STOCK, reward=False)
    assert done.returncode != 0
    assert "the generate function set none, and there is neither --rm-type nor --custom-rm-path" in done.stdout + done.stderr

"""Users' functions and classes that stand for a whole step: --rollout-function-path, --eval-function-path, --data-source-path."""

import json
import shutil

import pytest
from conftest import metric, run_slime
from test_rollout_hooks import fates, hooked, samples, trained

pytestmark = pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")

STOCK = "from slime.rollout.sglang_rollout import generate_rollout as stock\n"
OWN_DOOR = """
import asyncio
from slime.rollout.base_types import RolloutFnEvalOutput, RolloutFnTrainOutput
from slime.utils.async_utils import run
from slime.utils.http_utils import post
from slime.utils.types import Sample

async def draw(args, sample):
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    params = {"max_new_tokens": 4, "ignore_eos": True, "temperature": 1.0}
    output = await post(url, {"input_ids": list(sample.tokens), "return_logprob": True, "sampling_params": params})
    drawn = output["meta_info"]["output_token_logprobs"]
    sample.append_response_tokens(args, tokens=[t[1] for t in drawn], log_probs=[t[0] for t in drawn],
                                  meta_info=output["meta_info"], text=output["text"])
    sample.reward = float(sample.index % 2)

async def draw_all(args, groups):
    await asyncio.gather(*(draw(args, sample) for group in groups for sample in group))
    return groups
"""


def code_of(run_dir, code, name="own.py"):
    return (run_dir.parent / f"{run_dir.name}-code" / name).write_text(code)


def test_the_stock_function_called_by_ones_own_trains(work):
    run_dir = work / "stock-rollout"
    code = STOCK + (
        "def rollout(args, rollout_id, data_source, evaluation=False):\n"
        "    output = stock(args, rollout_id, data_source, evaluation=evaluation)\n"
        "    output.metrics = {**(output.metrics or {}), 'rollout/mine': rollout_id + 0.5}\n"
        "    return output\n"
    )
    done = hooked(work, run_dir, code, ["--rollout-function-path", "own.py"])
    trained(done, run_dir)
    assert metric(run_dir, "rollout/mine") == [0.5, 1.5]
    rows = samples(run_dir)
    assert len(rows) == 32 and [row["index"] for row in rows] == list(range(32))
    assert [row["weight_versions"][0][0] for row in rows] == [0] * 16 + [1] * 16
    # Rewards are those of the program's own rule, and tokens those of its engine.
    assert {row["reward"] for row in rows} <= {0, 1}
    for row in rows:
        assert all(abs(a - b) < 1e-3 for a, b in zip(row["train_log_probs"], row["rollout_log_probs"]))


def test_what_it_takes_and_loses_has_a_fate_and_what_it_gives_back_comes_again(work):
    run_dir = work / "lost-rollout"
    code = OWN_DOOR + (
        "def generate_rollout(args, rollout_id, data_source, evaluation=False):\n"
        "    groups = data_source.get_samples(args.rollout_batch_size + 2)\n"
        "    print('first', groups[0][0].index, len(data_source), data_source.get_buffer_length())\n"
        "    data_source.add_samples([groups[-1]])\n"
        "    return run(draw_all(args, groups[:args.rollout_batch_size]))\n"
    )
    done = hooked(work, run_dir, code, ["--rollout-function-path", "own.py"], rollouts=3)
    trained(done, run_dir, 3)
    lost = fates(run_dir, "failed")
    assert [record["reason"] for record in lost] == ["lost by the rollout function"] * 3
    # The sixth group of a step is given back, and is the first of the next one.
    assert [record["ordinal"] for record in lost] == [4, 9, 14]
    assert [record["ordinal"] for record in fates(run_dir, "trained")] == [0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13]
    lines = (run_dir / "plugin" / "host-0.log").read_text().splitlines()
    assert [line.split()[:3] for line in lines] == [["first", "0", "60"], ["first", "20", "60"], ["first", "40", "60"]]
    assert [line.split()[3] for line in lines] == ["0", "0", "0"]


def test_what_it_samples_and_throws_away_is_a_metric(work):
    run_dir = work / "thrown-away"
    code = OWN_DOOR + (
        "def generate_rollout(args, rollout_id, data_source, evaluation=False):\n"
        "    groups = data_source.get_samples(args.rollout_batch_size)\n"
        "    url = f'http://{args.sglang_router_ip}:{args.sglang_router_port}/generate'\n"
        "    params = {'max_new_tokens': 2, 'ignore_eos': True}\n"
        "    async def twice():\n"
        "        for sample in (sample for group in groups for sample in group):\n"
        "            await post(url, {'input_ids': list(sample.tokens), 'sampling_params': params})\n"
        "        return await draw_all(args, groups)\n"
        "    return run(twice())\n"
    )
    trained(hooked(work, run_dir, code, ["--rollout-function-path", "own.py"]), run_dir)
    # Of six tokens of a sample two are thrown away.
    assert metric(run_dir, "rollout/untrained/lost") == [pytest.approx(1 / 3)] * 2
    assert metric(run_dir, "rollout/untrained_sampled_tokens") == [pytest.approx(1 / 3)] * 2


def test_a_group_that_cannot_be_trained_costs_itself_and_says_why(work):
    run_dir = work / "bad-groups"
    code = OWN_DOOR + (
        "def rollout(args, rollout_id, data_source, evaluation=False):\n"
        "    groups = run(draw_all(args, data_source.get_samples(8)))\n"
        "    groups[0][1].reward = float('nan')\n"
        "    groups[1][0].loss_mask = [1]\n"
        "    groups[2][0].reward = None\n"
        "    groups[3] = groups[3] + [groups[3][0]]\n"
        "    return RolloutFnTrainOutput(samples=groups)\n"
    )
    done = hooked(work, run_dir, code, ["--rollout-function-path", "own.py"], rollouts=1)
    trained(done, run_dir, 1)
    assert "has no effect" not in done.stdout
    reasons = {record["ordinal"]: record["reason"] for record in fates(run_dir, "failed")}
    assert all(reason.startswith("rollout function: ") for reason in reasons.values())
    assert "Sample.loss_mask has 1 entries for 4" in reasons[1] and "Sample.reward is missing" in reasons[2]
    assert "a group of 5 samples; --n-samples-per-prompt is 4" in reasons[3] and "float values" in reasons[0]
    assert [record["ordinal"] for record in fates(run_dir, "trained")] == [4, 5, 6, 7]


def test_groups_of_its_own_and_a_sample_that_became_several(work):
    run_dir = work / "own-groups"
    code = OWN_DOOR + (
        "import copy\n"
        "class Mine:\n"
        "    def __init__(self, args): self.calls = 0\n"
        "    def __call__(self, args, rollout_id, data_source, evaluation=False):\n"
        "        self.calls += 1\n"
        "        groups = [[Sample(prompt='x', tokens=[5, 6, 7], index=j) for j in range(4)] for i in range(4)]\n"
        "        run(draw_all(args, groups))\n"
        "        groups[0][0] = [groups[0][0], copy.deepcopy(groups[0][0])]\n"
        "        return RolloutFnTrainOutput(samples=groups, metrics={'rollout/calls': self.calls, 'rollout/odd': 'x'})\n"
    )
    flags = ["--rollout-function-path", "own.py:Mine", "--disable-rollout-global-dataset"]
    done = hooked(work, run_dir, code, flags)
    trained(done, run_dir)
    assert metric(run_dir, "rollout/calls") == [1, 2]
    assert "its metric rollout/odd is no number" in done.stdout
    rows = samples(run_dir)
    assert len(rows) == 34 and rows[0]["rollout_id"] == 0 and [row["index"] for row in rows[:3]] == [0, 0, 1]
    assert [record["ordinal"] for record in fates(run_dir, "trained")] == list(range(8))


FAILURES = {
    "raises": ("raise ValueError('no such luck')", "ValueError: no such luck"),
    "type": ("return 7", "int is returned; it is RolloutFnTrainOutput or a list of groups"),
    "nothing": ("return []", "returned no group that can be trained, its list is empty"),
    "depth": ("return data_source.get_samples(4)[0]", "can be trained: TypeError: a list of samples is wanted, this is Sample"),
    "ends": ("import os; os._exit(4)", "ended with exit code 4"),
}


@pytest.mark.parametrize("what", FAILURES)
def test_a_rollout_function_that_fails_ends_the_run_with_its_reason(work, what):
    statement, reason = FAILURES[what]
    run_dir = work / f"rollout-{what}"
    code = f"def rollout(args, rollout_id, data_source, evaluation=False):\n    {statement}\n"
    done = hooked(work, run_dir, code, ["--rollout-function-path", "own.py"])
    assert done.returncode != 0 and "--rollout-function-path own.py: " in done.stderr and reason in done.stdout + done.stderr


def test_partial_rollouts_go_on_from_the_tokens_that_were_given_back(work):
    run_dir = work / "partial-rollout"
    flags = ["--rollout-function-path", "own.py", "--partial-rollout", "--over-sampling-batch-size", "12"]
    flags += ["--rollout-max-response-len", "480", "--custom-generate-function-path", "own.py:uneven"]
    code = STOCK + (
        "from slime.rollout.sglang_rollout import generate\n"
        "def rollout(args, rollout_id, data_source, evaluation=False):\n"
        "    return stock(args, rollout_id, data_source)\n"
        "async def uneven(args, sample, sampling_params):\n"  # four of twelve groups are long, and four are enough
        "    limit = 480 if sample.group_index % 3 == 2 else 8\n"
        "    return await generate(args, sample, {**sampling_params, 'max_new_tokens': limit, 'ignore_eos': True})\n"
    )
    done = hooked(work, run_dir, code, flags, rollouts=3)
    trained(done, run_dir, 3)
    assert fates(run_dir, "partial")
    # As in the original it drops what was finished in the same moment as the last group that it needed.
    assert {record["reason"] for record in fates(run_dir, "failed")} <= {"lost by the rollout function"}


EVALUATION = [
    "--eval-interval", "1", "--rollout-function-path", "own.py",
]  # fmt: skip


def test_evaluations_are_its_own_too_unless_another_one_is_named(work):
    run_dir = work / "function-evaluation"
    code = OWN_DOOR + (
        "def rollout(args, rollout_id, data_source, evaluation=False):\n"
        "    if evaluation:\n"
        "        sample = Sample(tokens=[5, 6], index=0)\n"
        "        run(draw_all(args, [[sample]]))\n"
        "        data = {'mine': {'rewards': [1.0, 0.0], 'truncated': [True, False], 'samples': [sample, sample]}}\n"
        "        return RolloutFnEvalOutput(data=data, metrics={'eval/more': rollout_id})\n"
        "    return run(draw_all(args, data_source.get_samples(4)))\n"
    )
    done = hooked(work, run_dir, code, EVALUATION)
    trained(done, run_dir)
    assert metric(run_dir, "eval/mine") == [0.5] * 3 and metric(run_dir, "eval/mine-truncated_ratio") == [0.5] * 3
    assert metric(run_dir, "eval/more") == [0, 0, 1] and metric(run_dir, "eval/mine/response_len/mean") == [4] * 3


def test_the_stock_function_evaluates_the_sets_of_the_flags(work):
    run_dir = work / "stock-evaluation"
    code = STOCK + (
        "def evaluate(args, rollout_id, data_source, evaluation=False):\n"
        "    for each in args.eval_datasets: each.apply_chat_template = False\n"
        "    return stock(args, rollout_id, data_source, evaluation=evaluation)\n"
    )
    rows = work / "plain.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"{i}+1=", "label": str(i + 1)}) + "\n" for i in range(6)))
    (work / "own_tokens.py").write_text("")
    flags = ["--eval-function-path", "own.py", "--eval-prompt-data", "plain", str(rows), "--eval-interval", "2"]
    code += (
        "import slime.rollout.sglang_rollout as package\n"
        "class Bytes:\n"
        "    def encode(self, text, add_special_tokens=False): return [ord(c) % 200 for c in text]\n"
        "package.load_tokenizer = lambda *args, **kwargs: Bytes()\n"
    )
    done = hooked(work, run_dir, code, flags)
    trained(done, run_dir)
    assert len(metric(run_dir, "eval/plain")) == 2


def test_native_evaluation_beside_a_rollout_function(work):
    run_dir = work / "native-evaluation"
    code = STOCK + "def rollout(args, rollout_id, data_source, evaluation=False):\n    return stock(args, rollout_id, data_source)\n"
    flags = [*EVALUATION, "--eval-function-path", "slime.rollout.sglang_rollout.generate_rollout"]
    flags += ["--eval-prompt-data", "test", str(work / "data" / "test.jsonl")]
    done = hooked(work, run_dir, code, flags)
    trained(done, run_dir)
    assert len(metric(run_dir, "eval/test")) == 3


SOURCE = """
import json, os
from slime.rollout.data_source import DataSource
from slime.utils.types import Sample

class Counting(DataSource):
    def __init__(self, args):
        self.args, self.next, self.buffer = args, 0, []
    def get_samples(self, num_samples):
        groups, self.buffer = self.buffer[:num_samples], self.buffer[num_samples:]
        print("get", num_samples, "again", len(groups))
        while len(groups) < num_samples:
            row = {"number": self.next}
            groups.append([Sample(prompt=f"{self.next}+1=", label=str(self.next + 1), metadata=dict(row), index=7, group_index=0)
                           for _ in range(self.args.n_samples_per_prompt)])
            self.next += 1
        return groups
    def add_samples(self, samples):
        print("add", len(samples), samples[0][0].response_length > 0)
        self.buffer += samples
    def file(self, rollout_id):
        return os.path.join(self.args.save, f"counting_{rollout_id}.json")
    def save(self, rollout_id):
        with open(self.file(rollout_id), "w") as file: json.dump(self.next, file)
    def load(self, rollout_id=None):
        print("load", rollout_id, self.args.load)
        if self.args.load and rollout_id >= 0:
            with open(self.file(rollout_id)) as file: self.next = json.load(file)
    def __len__(self):
        return 1000
"""


def numbers(run_dir):
    return [row["metadata"]["number"] for row in samples(run_dir)]


@pytest.mark.parametrize("form", ["train", "train-async"])
def test_a_data_source_of_ones_own_gives_the_prompts_and_goes_on_after_a_restart(work, form):
    run_dir = work / f"own-data-{form}"
    flags = ["--data-source-path", "own.py:Counting"]
    done = hooked(work, run_dir, SOURCE, flags, form=form)
    trained(done, run_dir)
    assert numbers(run_dir) == [n for n in range(8) for _ in range(4)]
    assert all(row["prompt"] == f"{row['metadata']['number']}+1=" for row in samples(run_dir))
    shutil.rmtree(work / f"{run_dir.name}-code")
    done = hooked(work, run_dir, SOURCE, flags, form=form, rollouts=4)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(numbers(run_dir)) == [n for n in range(16) for _ in range(4)]
    assert run_slime([str(done.args[0]), "ledger", str(run_dir)]).returncode == 0


KEEPING = SOURCE.replace(
    "self.next = json.load(file)",
    "kept, self.next = json.load(file), 1000\n            self.buffer, self.next = self.get_samples(1), kept",
)
KEEPING += "    def get_buffer_length(self):\n        return len(self.buffer)\n"


def back_to_first_checkpoint(run_dir):
    """As after a death in the second step."""
    first, *later = sorted((run_dir / "checkpoints").glob("iter_*"))
    for folder in later:
        shutil.rmtree(folder)
    (run_dir / "latest").unlink()
    (run_dir / "latest").symlink_to(first.relative_to(run_dir))
    assert json.loads((first / "run.json").read_text())["run"]["not_given_back"]


def test_groups_that_were_under_way_come_again_beside_those_that_the_class_kept(work):
    run_dir = work / "own-data-kept"
    flags = ["--data-source-path", "own.py:Counting"]
    trained(hooked(work, run_dir, KEEPING, flags, form="train-async", rollouts=4), run_dir, 4)
    assert sorted(numbers(run_dir)) == [n for n in range(16) for _ in range(4)]
    shutil.rmtree(work / f"{run_dir.name}-code")
    back_to_first_checkpoint(run_dir)
    trained(hooked(work, run_dir, KEEPING, flags, form="train-async", rollouts=4), run_dir, 4)
    assert sorted(numbers(run_dir)) == [n for n in [*range(15), 1000] for _ in range(4)]


def test_groups_that_are_given_back_come_again_with_their_tokens_also_after_a_restart(work):
    run_dir = work / "own-data-partial"
    flags = ["--data-source-path", "own.py:Counting", "--partial-rollout", "--over-sampling-batch-size", "12"]
    flags += ["--rollout-max-response-len", "48"]
    done = hooked(work, run_dir, SOURCE, flags, rollouts=2)
    trained(done, run_dir)
    log = (run_dir / "plugin" / "host-0.log").read_text()
    assert "add 8 True" in log and "again 8" in log
    shutil.rmtree(work / f"{run_dir.name}-code")
    done = hooked(work, run_dir, SOURCE, flags, rollouts=4)
    trained(done, run_dir, 4)
    assert not fates(run_dir, "failed")
    # Ordinals are those that they had: each prompt is trained at most once.
    ended = [record["ordinal"] for record in fates(run_dir, "trained")]
    assert len(ended) == len(set(ended)) == 16


def test_the_packages_own_class_under_another_name(work):
    run_dir = work / "package-data"
    rows = work / "texts.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"{i}+1=", "label": str(i + 1)}) + "\n" for i in range(20)))
    code = (
        "from slime.rollout.data_source import RolloutDataSourceWithBuffer\n"
        "class Mine(RolloutDataSourceWithBuffer):\n"
        "    def __init__(self, args):\n"
        "        args.apply_chat_template = False\n"
        "        super().__init__(args)\n"
    )
    (work / "texts.yaml").write_text(f"prompt_data: [{rows}]\n")  # in place of the command's, to which another would add
    flags = ["--data-source-path", "own.Mine", "--custom-config-path", str(work / "texts.yaml")]
    done = hooked(work, run_dir, code, flags)
    trained(done, run_dir)
    assert (run_dir / "checkpoints" / "rollout" / "global_dataset_state_dict_1.json").exists()


BAD_SOURCES = {
    "no-method": ("class Own:\n    def __init__(self, args): pass\n", "the class has no get_samples; write `class DataSource: "),
    "raises": (SOURCE.replace("self.args, self.next", "1 / 0; self.args, self.next"), "ZeroDivisionError"),
    "size": (SOURCE.replace("range(self.args.n_samples_per_prompt)", "range(3)"), "a group of 3 samples; --n-samples-per-prompt is 4"),
    "type": (SOURCE.replace("return groups", "return 3"), "get_samples returns int; it is a list of groups"),
    "save": (SOURCE.replace("with open(self.file(rollout_id), \"w\")", "raise OSError('full')\n        with open('x', 'w')"), "save: OSError: full"),
}


@pytest.mark.parametrize("what", BAD_SOURCES)
def test_a_data_source_that_fails_ends_the_run_with_its_reason(work, what):
    code, reason = BAD_SOURCES[what]
    run_dir = work / f"bad-data-{what}"
    name = "Own" if what == "no-method" else "Counting"
    done = hooked(work, run_dir, code, ["--data-source-path", f"own.py:{name}"])
    assert done.returncode != 0 and "--data-source-path" in done.stderr and reason in done.stderr, done.stderr


def test_a_rollout_function_with_a_data_source_of_ones_own(work):
    run_dir = work / "both-own"
    code = SOURCE + OWN_DOOR + (
        "def rollout(args, rollout_id, data_source, evaluation=False):\n"
        "    groups = data_source.get_samples(4)\n"
        "    for group in groups:\n"
        "        for i, sample in enumerate(group): sample.tokens, sample.index = [5, 6, 7], i\n"
        "    return run(draw_all(args, groups))\n"
    )
    flags = ["--data-source-path", "own.py:Counting", "--rollout-function-path", "own.py"]
    done = hooked(work, run_dir, code, flags)
    trained(done, run_dir)
    assert numbers(run_dir) == [n for n in range(8) for _ in range(4)]

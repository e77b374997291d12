"""Functions and classes in forms that slime does not call itself, in runs: they train, or the refusal shows a right form."""

import json
import re
import shutil
import signal
import subprocess
import time

import pytest
from conftest import SLIME, metric, run_slime, train_command
from test_rollout_hooks import hooked, samples, trained

pytestmark = pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")

BATCH_GENERATE = """
from slime.rollout.sglang_rollout import generate as one_turn

async def custom_generate(args, samples, evaluation=False):
    done = []
    for sample in samples:
        sample = await one_turn(args, sample, {"temperature": 1.0, "max_new_tokens": args.max_turns + 1, "ignore_eos": True})
        sample.metadata["evaluation"] = evaluation
        done.append(sample)
    return done
"""
TEXT_ALONE = """
async def custom_generate(args, samples, evaluation=False):
    for sample in samples:
        conversation = list(sample.prompt) if isinstance(sample.prompt, list) else [{"role": "user", "content": sample.prompt}]
        conversation.append({"role": "assistant", "content": "12"})
        sample.response = conversation[-1]["content"]
        sample.reward = 1.0 if sample.index % 2 else 0.0
    return samples
"""
REWARD_CLASS = """
class CustomRewardModel:
    def __init__(self, model_path):
        self.model_path = model_path

    def compute_reward(self, prompts, responses):
        assert self.model_path == "judge" and len(prompts) == len(responses)
        print("scored", len(responses), flush=True)
        return [float(len(response)) for response in responses]
"""
# The package's data source renders with transformers, which these tests do without.
PLAIN_TEMPLATE = """
import slime.utils.processing_utils

class Plain:
    def apply_chat_template(self, messages, **options):
        return messages[-1]["content"]

slime.utils.processing_utils.load_tokenizer = lambda *args, **options: Plain()
"""
BUFFER = """
from slime.rollout.data_source import RolloutDataSourceWithBuffer as Base

class Mine(Base):
    def __init__(self, args):
        super().__init__(args)

    def buffer_filter(self, args, buffer, num_samples):
        print("asked for", num_samples, "of", len(buffer), flush=True)
        return sorted(buffer, key=lambda group: -group[0].group_index)[:num_samples]
"""
ROWS = """
from slime.utils.types import Sample

class RolloutDataSource:
    def __init__(self, dataset, args):
        self.dataset, self.args = dataset, args

    def get_samples(self, num_samples):
        return self.dataset.sample(num_samples)

    def add_samples(self, samples):
        raise RuntimeError("nothing is given back here")
"""


def log_of(run_dir):
    return (run_dir / "plugin" / "host-0.log").read_text()


def test_a_generate_function_of_batches_is_found_by_its_name_and_trains(work):
    run_dir = work / "seed-generate"
    done = hooked(work, run_dir, BATCH_GENERATE, ["--custom-generate-function-path", "own.py", "--max-turns", "3"])
    trained(done, run_dir)
    assert "it takes a list of samples, and gets one at a time" in done.stdout + done.stderr
    assert {row["response_length"] for row in samples(run_dir)} == {4}
    assert all(row["metadata"]["evaluation"] is False for row in samples(run_dir))


def test_a_response_without_tokens_is_tokenised_and_that_is_said(work):
    run_dir = work / "seed-text"
    done = hooked(work, run_dir, TEXT_ALONE, ["--custom-generate-function-path", "own.py"])
    assert done.returncode == 0 and len(metric(run_dir, "train/loss")) == 2, done.stdout + done.stderr
    rows = samples(run_dir)
    assert len(rows) == 32 and all(row["response"] == "12" and row["response_length"] == 2 for row in rows)
    assert "the text is tokenised" in log_of(run_dir) and log_of(run_dir).count("the text is tokenised") == 1


def test_a_list_of_messages_is_one_and_may_be_gone_on_with(work):
    """As the seeds' example does, without --apply-chat-template: the prompt is rendered as it was given."""
    run_dir = work / "seed-messages"
    folder = work / "seed-messages-code"
    folder.mkdir()
    (folder / "own.py").write_text(TEXT_ALONE.replace("list(sample.prompt) if isinstance(sample.prompt, list)", "sample.prompt if sample.prompt.append"))
    rows = [{"prompt": [{"role": "user", "content": f"{i}+1="}], "label": "2"} for i in range(20)]
    (folder / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [each for each in train_command(work, run_dir, rollouts=2) if each != "--apply-chat-template"]
    command[command.index("--prompt-data") + 1] = "chat.jsonl"
    done = run_slime([*command, "--custom-generate-function-path", "own.py"], cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.dumps({"messages": row["prompt"], "options": {"add_generation_prompt": True}}) for row in rows]
    shown = subprocess.run(
        [str(SLIME), "chat-template", "--model", str(work / "model")], input="\n".join(lines), capture_output=True, text=True
    )
    rendered = [json.loads(line)["ids"] for line in shown.stdout.splitlines()]
    made = [row["tokens"][: -row["response_length"]] for row in samples(run_dir)]
    assert len(made) == 32 and len(rendered) == 20 and all(tokens in rendered for tokens in made)


@pytest.mark.parametrize("flags", [[], ["--group-rm"]])
def test_a_reward_class_scores_prompts_and_responses(work, flags):
    run_dir = work / f"seed-reward{len(flags)}"
    done = hooked(work, run_dir, REWARD_CLASS, ["--custom-rm-path", "own.py", "--model-path", "judge", *flags])
    trained(done, run_dir)
    assert all(row["reward"] == len(row["response"]) for row in samples(run_dir))
    assert sum(int(line.split()[1]) for line in log_of(run_dir).splitlines() if line.startswith("scored")) == 32


def test_a_reward_class_that_returns_another_number_is_told_with_both(work):
    run_dir = work / "seed-reward-number"
    code = REWARD_CLASS.replace("[float(len(response)) for response in responses]", "[1.0] * (len(responses) + 1)")
    done = hooked(work, run_dir, code, ["--custom-rm-path", "own.py", "--model-path", "judge"])
    said = re.search(r"compute_reward returned (\d+) rewards for (\d+) responses", done.stdout + done.stderr)
    assert done.returncode == 2 and int(said[1]) == int(said[2]) + 1, done.stdout + done.stderr


def test_a_class_whose_constructor_wants_a_value_names_the_flag_for_it(work):
    run_dir = work / "seed-reward-missing"
    done = hooked(work, run_dir, REWARD_CLASS, ["--custom-rm-path", "own.py", "--dry-run"])
    assert done.returncode == 2 and "CustomRewardModel() wants model_path" in done.stdout and "--model-path VALUE" in done.stdout


def test_a_method_that_orders_the_buffer_is_called(work):
    run_dir = work / "seed-buffer"
    flags = ["--data-source-path", "own.Mine", "--partial-rollout", "--over-sampling-batch-size", "8", "--rollout-max-response-len", "40"]
    flags += ["--sglang-server-concurrency", "16"]
    done = hooked(work, run_dir, PLAIN_TEMPLATE + BUFFER, flags, rollouts=3)
    trained(done, run_dir, rollouts=3)
    assert "asked for" in log_of(run_dir)


def test_a_data_source_without_save_and_load_trains_and_that_is_said(work):
    run_dir = work / "seed-source"
    done = hooked(work, run_dir, PLAIN_TEMPLATE + ROWS, ["--data-source-path", "own.py"])
    trained(done, run_dir)
    assert "the class has no save and load" in done.stdout + done.stderr
    assert metric(run_dir, "rollout/raw_reward")


@pytest.mark.parametrize(
    "flag, code, words",
    [
        ("--custom-generate-function-path", "def f(): pass\n", "write `async def generate(args, sample, sampling_params)`"),
        ("--custom-rm-path", "class A: pass\n", "write `async def reward(args, sample)`, or a class with `compute_reward(self, prompts, responses)`"),
        ("--data-source-path", "class DataSource: pass\n", "write `class DataSource: __init__(self, args), get_samples(self, num_samples)"),
    ],
)
def test_a_wrong_form_is_refused_with_a_right_one(work, flag, code, words):
    run_dir = work / f"wrong{flag}"
    done = hooked(work, run_dir, code, [flag, "own.py", "--dry-run"])
    assert done.returncode == 2 and words in done.stdout, done.stdout


def test_calls_that_are_repeated_do_not_hold_up_a_run_that_is_to_end(work):
    run_dir = work / "repeats"
    code = (
        "from slime.utils.http_utils import post\n"
        "async def generate(args, sample, sampling_params):\n"
        "    await post('http://127.0.0.1:9/service', {})\n"  # nobody listens there
    )
    folder = work / "repeats-code"
    folder.mkdir()
    (folder / "own.py").write_text(code)
    command = train_command(work, run_dir, extra=["--custom-generate-function-path", "own.py"])
    run = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = run_dir / "plugin" / "host-0.log"
    end = time.monotonic() + 120
    while not (log.exists() and "call 2 of 60 failed" in log.read_text()):
        assert time.monotonic() < end and run.poll() is None
        time.sleep(0.2)
    assert "http://127.0.0.1:9/service: ConnectionRefusedError" in log.read_text()
    asked = time.monotonic()
    run.send_signal(signal.SIGTERM)
    run.wait(timeout=60)
    assert time.monotonic() - asked < 30, "60 repetitions take a minute"

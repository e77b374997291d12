"""tinker-cookbook's recipes, unmodified, on `slime tinker`, with a tiny model and data sets in folders that have the names of those on the hub."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tinker_cookbook", reason="tinker-cookbook is not installed")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "end_to_end"))
from tinker_program import TinkerProgram  # noqa: E402

SLIME = Path(os.environ.get("SLIME", ROOT / "build/release/slime"))
MODEL = "Qwen/Qwen3-4B-Instruct-2507"  # recipes choose the renderer by it
ANSWERS = ["\\boxed{1}", "\\boxed{2}"]  # one token each: a fresh model finds them by chance


def write_rows(folder, split, rows):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_data(folder, name, config, train, test):
    write_rows(folder / name, "train", train)
    write_rows(folder / name, "test", test)
    files = "".join(f"  - split: {split}\n    path: {split}.jsonl\n" for split in ("train", "test"))
    (folder / name / "README.md").write_text(f"---\nconfigs:\n- config_name: {config}\n  data_files:\n{files}---\n")


def conversation(number):
    answer = ANSWERS[number % 2]
    messages = [{"role": "user", "content": f"Say {answer}."}, {"role": "assistant", "content": answer}]
    return {"prompt": messages[0]["content"], "prompt_id": str(number), "category": "Chat", "messages": messages}


def comparison(number):
    chosen, rejected = (f"\n\nHuman: What is {number}?\n\nAssistant: {answer}" for answer in ANSWERS)
    return {"chosen": chosen, "rejected": rejected}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where recipes run: what they ask the hub for lies there."""
    made = tmp_path_factory.mktemp("cookbook")
    words = [*ANSWERS, "<think>", "</think>"]
    command = [sys.executable, ROOT / "tools" / "tiny_model.py", made / MODEL, "--positions", "2048", "--words", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    sums = [{"question": f"What is {i + 1} - {i}?", "answer": "It is one.\n#### 1"} for i in range(512)]
    write_data(made, "openai/gsm8k", "main", sums, sums[:4])
    talks = [conversation(i) for i in range(1024)]
    write_data(made, "HuggingFaceH4/no_robots", "default", talks, talks[:128])
    comparisons = [comparison(i) for i in range(64)]
    write_data(made, "Anthropic/hh-rlhf", "default", comparisons, comparisons[:8])
    prompts = [{"question": f"What is {i}?", "final_answer": "1"} for i in range(64)]
    write_data(made, "zwhe99/DeepMath-103K", "default", prompts, prompts[:4])
    return made


@pytest.fixture(scope="module")
def program(folder, tmp_path_factory):
    started = TinkerProgram(SLIME, folder / MODEL, tmp_path_factory.mktemp("store"), name=MODEL)
    yield started
    started.stop()


@pytest.fixture
def run(folder, program, tmp_path):
    """Runs a recipe as its command line does: the steps' metrics, and what it has written."""
    environment = {
        **os.environ, "TINKER_API_KEY": "tml-tests", "TINKER_TELEMETRY": "0", "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub"),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip

    def run_one(recipe, *words, log=tmp_path / "log"):
        command = [sys.executable, "-m", f"tinker_cookbook.recipes.{recipe}", f"base_url={program.url}", f"model_name={MODEL}"]
        command += [f"log_path={log}", *words]
        done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-4000:]
        return [json.loads(line) for line in (log / "metrics.jsonl").read_text().splitlines()], said

    return run_one


def values(rows, name):
    return [row[name] for row in rows if name in row]


def checkpoints(log):
    return [json.loads(line) for line in (log / "checkpoints.jsonl").read_text().splitlines()]


def test_sl_basic_learns_and_reinforcement_goes_on_from_it(run, tmp_path):
    rows, _ = run("sl_basic", "learning_rate=1e-2", "lora_rank=8", "save_every=4")
    losses = values(rows, "train_mean_nll")
    assert len(losses) == 8 and losses[-1] < losses[0] / 2
    assert [0 < loss < 6 for loss in values(rows, "test/nll")] == [True]
    last = checkpoints(tmp_path / "log")[-1]
    assert last["name"] == "final" and last["sampler_path"]
    words = ["loss_fn=ppo", "num_substeps=2", "kl_penalty_coef=0.1", f"kl_reference_config.base_model={MODEL}", "compute_post_kl=True"]
    words += [f"load_checkpoint_path={last['state_path']}", "learning_rate=1e-3", "lora_rank=8", "max_tokens=16", "max_steps=1"]
    rows, said = run("rl_basic", *words, log=tmp_path / "more")
    assert values(rows, "env/all/correct")[0] > 0.3  # a fresh model has 0.06
    assert values(rows, "kl_policy_base")[0] > 0.1
    assert "Renderer metadata matches" in said  # what the first run wrote on its model


def test_sl_loop_goes_on_from_its_checkpoint_with_the_same_numbers(run, tmp_path):
    words = ["batch_size=8", "learning_rate=1e-2", "max_length=512", "lora_rank=8", "save_every=2", "max_steps=4"]
    rows, _ = run("sl_loop", *words)
    losses = values(rows, "train_mean_nll")
    assert len(losses) == 4 and losses[-1] < losses[0]
    saved = checkpoints(tmp_path / "log")
    assert [each["name"] for each in saved] == ["000002", "final"]
    again = tmp_path / "again"
    again.mkdir()
    (again / "checkpoints.jsonl").write_text(json.dumps(saved[0]) + "\n")
    rows, said = run("sl_loop", *words, log=again)
    assert "Resuming from batch 2" in said
    assert values(rows, "train_mean_nll") == losses[2:]


def test_rl_basic_learns(run):
    rows, _ = run("rl_basic", "learning_rate=1e-2", "lora_rank=8", "max_tokens=16", "max_steps=3")
    correct = values(rows, "env/all/correct")
    assert len(correct) == 3 and correct[-1] > 2 * correct[0] > 0
    assert all(abs(each) < 1e-4 for each in values(rows, "optim/kl_sample_train_v1"))


@pytest.mark.parametrize("loss", ["importance_sampling", "cispo", "gspo"])
def test_rl_loop_learns(run, loss):
    words = ["batch_size=8", "group_size=16", "learning_rate=1e-2", "lora_rank=8", "max_tokens=64", "max_steps=6", f"loss_fn={loss}"]
    rows, _ = run("rl_loop", *words)
    rewards = values(rows, "reward/total")
    assert len(rewards) == 6 and rewards[-1] > rewards[0] + 0.1


def test_preferences_are_learned_with_a_loss_of_the_recipes_own(run):
    rows, _ = run("preference.dpo.train", "batch_size=8", "learning_rate=1e-3", "max_length=256", "max_steps=4")
    assert values(rows, "accuracy")[-1] == 1.0 and values(rows, "margin")[-1] > 0.1


def test_a_student_is_taught_by_what_another_has_saved(run, tmp_path):
    run("sl_loop", "batch_size=16", "learning_rate=1e-2", "max_length=512", "lora_rank=8", "max_steps=8", log=tmp_path / "teacher")
    teacher = checkpoints(tmp_path / "teacher")[-1]["sampler_path"]
    words = [f"teacher_model={MODEL}", f"teacher_checkpoint={teacher}", "lora_rank=8", "group_size=8", "groups_per_batch=8", "max_tokens=16"]
    rows, _ = run("distillation.on_policy_distillation", *words, "learning_rate=1e-2", "max_steps=6", "eval_every=0", "save_every=0")
    distances = values(rows, "teacher_kl")
    assert len(distances) == 6 and distances[-1] < distances[0]

"""Published launch scripts of the original run to their end on two CPU ranks, in reduced size.

The words are those that the scripts give to train.py (tests/fixtures/flags/original_commands.tsv), unchanged. Behind them stand the
words of reduced(): the shape of a tiny model of the script's family, batches, lengths, the number of ranks and of steps, and places.
Nothing else is replaced: objective, optimizer, schedule, recomputation, data handling and transports are the script's.
"""

import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import textwrap

import pytest
from conftest import ROOT, SLIME, run_slime

COMMANDS = {}
for line in (ROOT / "tests" / "fixtures" / "flags" / "original_commands.tsv").read_text().splitlines():
    if not line.startswith("#"):
        name, program, *words = line.split("\t")
        COMMANDS[name] = (f"{program}.py", words)

# What a taught model says: it closes an empty thought, and boxes one of two answers.
WORDS = ["<think>", "</think>"]
ANSWERS = ["</think>\\boxed{1}", "</think>\\boxed{2}"]
FAMILIES = {"qwen3": [], "qwen3_moe": ["--experts", "8"], "qwen3_5": ["--delta", "--layers", "4"], "qwen2": ["--qkv-bias"]}
# Of each size in the script, that of the tiny model.
SHAPE = {
    "--num-layers": "num_hidden_layers", "--hidden-size": "hidden_size", "--ffn-hidden-size": "intermediate_size",
    "--num-attention-heads": "num_attention_heads", "--num-query-groups": "num_key_value_heads", "--kv-channels": "head_dim",
    "--vocab-size": "vocab_size", "--num-experts": "num_experts", "--moe-ffn-hidden-size": "moe_intermediate_size",
    "--moe-router-topk": "num_experts_per_tok",
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Data as the scripts' (a prompt of messages, a label), and models that are right half of the time."""
    folder = tmp_path_factory.mktemp("scripts")
    rng = random.Random(11)
    questions = [[{"role": "user", "content": f"{rng.randint(10, 99)}-{rng.randint(10, 99)}="}] for _ in range(64)]
    rows = [{"prompt": question, "label": "1", "metadata": {"task": index}} for index, question in enumerate(questions)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "aime.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:4]))
    taught = [{"messages": [*question, {"role": "assistant", "content": rng.choice(ANSWERS)}]} for question in questions]
    (folder / "sft.jsonl").write_text("".join(json.dumps(row) + "\n" for row in taught))
    return folder


def taught_model(world, family):
    """A model directory, and that of the same model untaught, as a teacher of another mind."""
    model, raw = world / family, world / f"{family}-untaught"
    if model.exists():
        return model, raw
    subprocess.run([sys.executable, ROOT / "tools" / "tiny_model.py", raw, *FAMILIES[family], "--hidden", "128", "--words", *WORDS], check=True, stdout=subprocess.DEVNULL)
    done = run_slime(
        [str(SLIME), "train", "--hf-checkpoint", raw, "--prompt-data", world / "sft.jsonl", "--input-key", "messages", "--loss-type", "sft_loss"]
        + ["--rollout-function-path", "slime.rollout.sft_rollout.generate_rollout", "--debug-train-only", "--num-rollout", "24"]
        + ["--rollout-batch-size", "32", "--global-batch-size", "32", "--lr", "3e-3", "--fp32", "--device", "cpu", "--run-dir", world / f"{family}-sft"]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (world / f"{family}-sft" / "latest").resolve().rename(model)
    return model, raw


def reduced(words, world, model, run_dir, more):
    """What stands behind the script's words: `more`, and the model's shape where the script says it."""
    config = json.loads((model / "config.json").read_text())
    override = {flag: str(config[key] if key in config else config["hidden_size"] // config["num_attention_heads"]) for flag, key in SHAPE.items() if flag in words}
    if "--rotary-base" in words:
        override["--rotary-base"] = str(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])
    if "--moe-layer-freq" in words:
        override["--moe-layer-freq"] = str([1] * config["num_hidden_layers"]).replace(" ", "")
    places = {"--hf-checkpoint": model, "--ref-load": model, "--prompt-data": world / "train.jsonl", "--save": run_dir, "--load": run_dir}
    override |= {flag: str(path) for flag, path in places.items() if flag in words}
    override |= {
        "--device": "cpu", "--actor-num-nodes": "1", "--actor-num-gpus-per-node": "2", "--num-rollout": "2", "--rollout-batch-size": "4",
        "--n-samples-per-prompt": "4", "--global-batch-size": "16", "--rollout-max-response-len": "12", "--max-tokens-per-gpu": "256", "--save-interval": "1",
    }  # fmt: skip
    override |= more
    return [*words, *(word for flag, value in override.items() for word in (flag, *value.split("\n")))]


def command_of(release, script):
    """(program, words): of "0.3" or "0.4", by the script's file name."""
    commit = {"0.3": "624b824a", "0.4": "5dcf67cd"}[release]
    (name,) = [name for name in COMMANDS if name.startswith(f"{commit}:") and name.endswith(f"/{script}")]
    return COMMANDS[name]


def run_script(release, script, world, family, tmp_path, more, environment=None):
    """Ends with code 0, finite metrics of each step, other weights and a whole checkpoint; returns where, what was said, and the rows of metrics."""
    model, _ = taught_model(world, family)
    run_dir = tmp_path / "run"
    program, words = command_of(release, script)
    command = [sys.executable, str(ROOT / program), *reduced(words, world, model, run_dir, more)]
    environment = {**os.environ, "SLIME_BINARY": str(SLIME), "OMP_NUM_THREADS": "1", **(environment or {})}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    steps = {}
    for line in (run_dir / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        steps.setdefault(row["step"], {}).update(row)
    rows = [steps[step] for step in sorted(steps)]
    numbers = [(key, value) for row in rows for key, value in row.items() if isinstance(value, (int, float))]
    assert numbers and all(math.isfinite(value) for _, value in numbers), [key for key, value in numbers if not math.isfinite(value)]
    assert all("train/loss" in row and row["train/grad_norm"] > 0 for row in rows), rows
    checkpoint = (run_dir / "latest").resolve()
    assert (checkpoint / "COMMITTED").exists()
    before, after = tensors(model), tensors(checkpoint)
    assert before.keys() == after.keys()
    assert {key: size for key, (size, _) in before.items()} == {key: size for key, (size, _) in after.items()}
    assert any(before[key] != after[key] for key in before)
    return run_dir, done.stdout + done.stderr, rows


def tensors(directory):
    """Name: (shape, bytes as float32) of model.safetensors."""
    found = {}
    for path in sorted(directory.glob("*.safetensors")):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(data[8 : 8 + length]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + length + at for at in entry["data_offsets"])
            raw = data[begin:end]
            if entry["dtype"] == "BF16":
                raw = b"".join(b"\0\0" + raw[at : at + 2] for at in range(0, len(raw), 2))
            found[name] = (tuple(entry["shape"]), raw)
    return found


def samples(run_dir):
    return [json.loads(line) for path in sorted((run_dir / "rollouts").glob("step_*.jsonl")) for line in path.open()]


# What these scripts say of the architecture, of kernels and of precision, which config.json and the program decide.
OF_MEGATRON = {
    "--swiglu", "--group-query-attention", "--disable-bias-linear", "--normalization", "--recompute-method", "--recompute-num-layers",
    "--attention-dropout", "--hidden-dropout", "--accumulate-allreduce-grads-in-fp32", "--attention-softmax-in-fp32", "--attention-backend",
    "--sglang-mem-fraction-static",
}  # fmt: skip
OF_QWEN3 = OF_MEGATRON | {"--qk-layernorm", "--use-rotary-position-embeddings"}
OF_NO_EXPERTS = {"--expert-tensor-parallel-size"}


def without_effect(said):
    """The flags of which the run says that they do nothing: with a reason, on a CPU, in this run, or because nothing reads them."""
    nothing = re.findall(r"^(?:slime train(?:-async)?: )?((?:--[a-z0-9-]+(?:, )?)+)[^\n]*? ha[sd] no effect", said, re.MULTILINE)
    unread = re.findall(r"^(--[a-z0-9-]+): nothing of slime reads it", said, re.MULTILINE)
    of_gpus = re.findall(r"^(--[a-z0-9-]+) [^\n]*: is about a GPU's memory", said, re.MULTILINE)
    return {flag for flags in [*nothing, *unread, *of_gpus] for flag in flags.split(", ")}


def check_grpo(rows, rate=1e-6):
    """Groups whose rewards differ teach, with the script's learning rate or `rate`; trainer and engine agree on what was sampled."""
    for row in rows:
        assert 0 < row["rollout/raw_reward"] < 1 and row["train/grad_norm"] > 0.01 and row["train/lr-pg_0"] == rate
        assert row["train/kl_loss"] >= 0 and row["train/entropy_loss"] > 0 and row["train/train_rollout_logprob_abs_diff"] < 0.02
    assert rows[0]["train/kl_loss"] == 0, "the reference is the policy at the start"
    # Steps of 1e-6 move log-probs by 1e-5, of which float32 makes 0 where a processor computes in float32.
    assert rate == 1e-6 or rows[1]["train/kl_loss"] > 0, "the reference stays, the policy moves"


def evaluation(world):
    return {"--eval-interval": "1", "--eval-prompt-data": f"aime\n{world / 'aime.jsonl'}", "--n-samples-per-eval-prompt": "2", "--eval-max-response-len": "12"}


def test_grpo_of_a_dense_model(world, tmp_path):
    """Tensor and sequence parallelism, an engine of two ranks on the trainers' devices, recomputation, evaluation."""
    more = {"--rollout-num-gpus": "2", **evaluation(world)}
    run_dir, said, rows = run_script("0.3", "run-qwen3-4B.sh", world, "qwen3", tmp_path, more)
    check_grpo(rows)
    assert all(0 <= row["eval/aime"] <= 1 for row in rows)
    assert without_effect(said) == OF_QWEN3 | OF_NO_EXPERTS
    assert max(path.name for path in (run_dir / "workers").iterdir()) == "rank_1.log"
    assert len(samples(run_dir)) == 2 * 16


def test_grpo_of_experts(world, tmp_path):
    """Experts on two ranks, which are tensor-parallel too; eight experts, of which a token visits two."""
    more = {"--rollout-num-gpus": "2", "--tensor-model-parallel-size": "2", "--expert-model-parallel-size": "2", "--rollout-num-gpus-per-engine": "2"}
    _, said, rows = run_script("0.3", "run-qwen3-30B-A3B.sh", world, "qwen3_moe", tmp_path, more | evaluation(world) | {"--lr": "1e-3"})
    check_grpo(rows, rate=1e-3)
    assert all("eval/aime" in row and 1 <= row["train/moe_load_max"] <= 8 for row in rows)
    of_kernels = {
        "--moe-token-dispatcher-type", "--moe-grouped-gemm", "--moe-token-drop-policy", "--moe-router-dtype", "--moe-permute-fusion",
        "--moe-router-score-function", "--moe-layer-freq", "--overlap-cpu-optimizer-d2h-h2d", "--use-precision-aware-optimizer",
        "--optimizer-cpu-offload", "--sglang-cuda-graph-bs", "--position-embedding-type", "--untie-embeddings-and-output-weights",
    }  # fmt: skip
    assert without_effect(said) == OF_QWEN3 - {"--use-rotary-position-embeddings"} | of_kernels


def test_distillation(world, tmp_path):
    """A teacher in the trainers, its reverse KL in the advantages, and no labels; the engine is apart."""
    _, teacher = taught_model(world, "qwen3")
    more = {"--rollout-num-gpus": "1", "--opd-teacher-load": str(teacher)}
    run_dir, said, rows = run_script("0.3", "run-qwen3-8B-opd-megatron.sh", world, "qwen3", tmp_path, more)
    for row in rows:
        # An untaught model finds all tokens about alike: the reverse KL of a taught one is large, and nothing else teaches.
        assert row["rollout/raw_reward"] == 0 and row["rollout/opd_reverse_kl"] > 1 and row["train/grad_norm"] > 0.1
        assert row["rollout/teacher_log_probs"] < row["rollout/rollout_log_probs"] - 1
    assert "without --label-key every reward is 0" in said
    assert "--opd-kl-coef" not in without_effect(said) and "--tensor-model-parallel-size" not in without_effect(said)
    assert len(samples(run_dir)) == 2 * 16


def test_fully_asynchronous(world, tmp_path):
    """One rank trains and one generates all the time, as train_async.py says; steps and intervals as they stand in the script."""
    more = {"--actor-num-gpus-per-node": "1", "--rollout-num-gpus": "1", "--num-rollout": "3", "--save-interval": "9999"}
    run_dir, said, rows = run_script("0.3", "run-qwen2.5-0.5B-fully_async.sh", world, "qwen2", tmp_path, more)
    check_grpo(rows)
    assert rows[0]["rollout/staleness/mean"] == 0 and max(row["rollout/staleness/max"] for row in rows) >= 1
    assert all("perf/engine_idle_time" in row for row in rows) and len(rows) == 3
    assert sorted(path.name for path in run_dir.glob("iter_*")) == ["iter_0000002"], "9999 is behind the last step, which is saved"
    assert without_effect(said) & {"--rollout-function-path", "--num-rollout", "--kl-loss-type"} == set()


def test_coding_agents(world, tmp_path):
    """The newest script of 0.4.0: pipeline stages of gated delta nets, agents that speak Responses, nuclei, one step of four samples.

    The function that it names needs a node of sandboxes; the one here has its name, and an agent of two turns without tools."""
    package = tmp_path / "code" / "examples" / "coding_agent_rl"
    package.mkdir(parents=True)
    (package / "generate.py").write_text(AGENT)
    more = {
        "--num-gpus-per-node": "2", "--rollout-num-gpus": "2", "--tensor-model-parallel-size": "1", "--pipeline-model-parallel-size": "2",
        "--rollout-num-gpus-per-engine": "2", "--rollout-max-context-len": "256", "--sglang-context-length": "256", "--rollout-stop-token-ids": "258\n256",
        "--save-debug-rollout-data": str(tmp_path / "rollout_{rollout_id}.pt"), "--save-debug-train-data": str(tmp_path / "train_{rollout_id}.pt"),
        "--num-rollout": "1", "--rollout-batch-size": "2", "--n-samples-per-prompt": "2", "--global-batch-size": "4",
    }  # fmt: skip
    python = os.pathsep.join([str(tmp_path / "code"), str(ROOT / "python")])
    run_dir, said, rows = run_script("0.4", "run_qwen38_27b_sunabako_2plus2.sh", world, "qwen3_5", tmp_path, more, {"PYTHONPATH": python})
    assert len(rows) == 1 and rows[0]["train/train_rollout_logprob_abs_diff"] < 0.02
    drawn = samples(run_dir)
    assert len(drawn) >= 4 and {len(each["loss_mask"]) for each in drawn} == {each["response_length"] for each in drawn}
    assert all(each["metadata"]["parsers"] == ["qwen3_coder", "qwen3"] for each in drawn), "what args say of flags that only agents read"
    for each in drawn:
        # Two turns that are trained, a user's words between them that are not; the nucleus of each trained token has it.
        mask = each["loss_mask"]
        assert mask[0] == 1 and sum(now and not before for before, now in zip([0, *mask], mask)) == 2
    assert rows[0]["rollout/top_p_kept_vocab_per_token"] >= 1
    assert not without_effect(said) & {"--rollout-top-p", "--pipeline-model-parallel-size", "--rollout-stop-token-ids", "--rollout-max-context-len"}
    assert list(tmp_path.glob("rollout_0.*"))


AGENT = textwrap.dedent("""
    from slime.agent.server_sessions import ServerSessions
    from slime.utils.http_utils import post

    TOOL = {"type": "function", "name": "shell", "description": "runs a command", "parameters": {"type": "object", "properties": {}}}

    async def generate(args, sample, sampling_params):
        sessions = ServerSessions(f"http://{args.sglang_router_ip}:{args.sglang_router_port}")
        name = await sessions.open(
            sampling_defaults={**sampling_params, "max_new_tokens": 8}, max_context_tokens=args.rollout_max_context_len,
            chat_template_kwargs=args.apply_chat_template_kwargs, tool_parser=args.sglang_tool_call_parser, reasoning_parser=args.sglang_reasoning_parser,
        )
        history = [{"role": "user", "content": sample.prompt[0]["content"]}]
        for turn in range(2):
            answer = await post(f"{sessions.url(name)}/v1/responses", {"model": "slime-actor", "input": history, "tools": [TOOL], "store": False})
            history += answer["output"]
            history.append({"role": "user", "content": "again"})
        samples = await sessions.finish(name, base_sample=sample, reward=float(sample.index % 2))
        for each in samples:
            each.metadata["parsers"] = [args.sglang_tool_call_parser, args.sglang_reasoning_parser]
        return samples
""")

"""Adapters in one server on an NVIDIA GPU: rows of a batch that take different ones. Skipped where there is no GPU."""

import pytest
from server_process import ROOT, Server
from test_lora_routes import ADAPTERS, MODEL, NAMES, ask, greedy_of
from visible_gpus import num_gpus

pytestmark = pytest.mark.skipif(num_gpus() == 0, reason="no NVIDIA GPU")

# Of float16 against PEFT's float32; those of another adapter are further away.
BOUND = 0.03


@pytest.fixture(scope="module")
def server():
    paths = [f"{name}={ADAPTERS / folder}" for name, folder in NAMES.items()]
    flags = ["--skip-tokenizer-init", "--device", "cuda", "--dtype", "float16", "--max-total-tokens", "8192", "--max-loaded-loras", "4"]
    with Server(str(MODEL), *flags, "--weights-root", str(ADAPTERS), "--served-model-name", "base", "--lora-paths", *paths) as running:
        yield running


def logprobs(answer, kind="output_token_logprobs"):
    return [value for value, *_ in answer["meta_info"][kind] if value is not None]


def near(left, right):
    return len(left) == len(right) and all(abs(a - b) < BOUND for a, b in zip(left, right, strict=True))


def scored(server, golden, name):
    """Log-probs of the golden tokens behind their prompt."""
    body = {"input_ids": [*golden["prompt"], *golden["tokens"]], "sampling_params": {"max_new_tokens": 1, "temperature": 0}, "return_logprob": True}
    body["logprob_start_len"] = len(golden["prompt"]) - 1
    if name is not None:
        body["lora_path"] = name
    status, answer = server.post("/generate", body)
    assert status == 200, answer
    return logprobs(answer, "input_token_logprobs")[-len(golden["tokens"]) :]


def test_each_adapter_has_the_log_probs_of_peft(server):
    for name, folder in [*NAMES.items(), (None, None)]:
        golden = greedy_of(ADAPTERS / folder if folder else MODEL)
        assert near(scored(server, golden, name), golden["logprobs"]), (name, scored(server, golden, name), golden["logprobs"])


@pytest.mark.parametrize("path", ["qwen3_moe/head", "llama/tied_head", "llama/tied_embedding", "qwen3_moe/experts_each", "qwen3_moe/experts_fused"])
def test_adapters_of_other_modules_have_the_log_probs_of_peft(path):
    """Of prompts, whose rows are scored in blocks, and of what is drawn beside rows of the model alone."""
    model, adapter = ROOT / "tests/fixtures/models" / path.split("/")[0], ROOT / "tests/fixtures/lora" / path
    flags = ["--skip-tokenizer-init", "--device", "cuda", "--dtype", "float16", "--max-total-tokens", "8192"]
    with Server(str(model), *flags, "--served-model-name", "base", "--lora-paths", f"own={adapter}") as running:
        golden, plain = greedy_of(adapter), greedy_of(model)
        assert near(scored(running, golden, "own"), golden["logprobs"])
        assert not near(scored(running, golden, None), golden["logprobs"])
        params = {"max_new_tokens": 6, "temperature": 0, "ignore_eos": True}
        rows, names = [golden, plain] * 4, ["own", None] * 4
        body = {"input_ids": [row["prompt"] for row in rows], "lora_path": names, "sampling_params": params, "return_logprob": True}
        for _ in range(3):  # as it is, recorded, replayed
            status, answers = running.post("/generate", body)
            assert status == 200, answers
            for row, answer in zip(rows, answers, strict=True):
                count = next((i for i, pair in enumerate(zip(row["tokens"], answer["output_ids"])) if pair[0] != pair[1]), 6)
                assert count > 0 and near(logprobs(answer)[:count], row["logprobs"][:count]), (answer, row)
            assert running.post("/flush_cache")[0] == 200


def test_rows_of_a_mixed_batch_are_those_rows_alone(server):
    """Steps of other sizes have other products, so not every bit; tokens and steps of one size are looked at."""
    golden = greedy_of(ADAPTERS / NAMES["qv"])
    names = ["qv", None, "all", "qv", "all", None, "all"] * 5
    params = {"max_new_tokens": 24, "temperature": 0, "ignore_eos": True}
    prompts = [[*golden["prompt"], 7 + i % 7] for i in range(len(names))]
    body = {"input_ids": prompts, "lora_path": names, "sampling_params": params, "return_logprob": True, "logprob_start_len": 0}
    status, mixed = server.post("/generate", body)
    assert status == 200, mixed
    first = {}
    for prompt, name, row in zip(prompts, names, mixed, strict=True):
        key = (name, prompt[-1])
        assert server.post("/flush_cache")[0] == 200
        if key not in first:
            first[key] = server.post("/generate", {**body, "input_ids": [prompt], "lora_path": [name]})[1][0]
        assert near(logprobs(row)[:1], logprobs(first[key])[:1]), key
        assert near(logprobs(row, "input_token_logprobs"), logprobs(first[key], "input_token_logprobs")), key
    answers = {name: [tuple(row["output_ids"]) for row, own in zip(mixed, names, strict=True) if own == name] for name in ("qv", "all", None)}
    assert not set(answers["qv"]) & set(answers["all"]) and not set(answers["all"]) & set(answers[None])


def test_adapters_come_and_go_between_recorded_steps(server):
    """Steps are recorded with those that were there before."""
    golden = greedy_of(ADAPTERS / "patterns")
    for _ in range(3):
        assert ask(server, greedy_of(ADAPTERS / NAMES["qv"]), "qv")[0] == 200
    status, answer = server.post("/load_lora_adapter", {"lora_name": "fresh", "lora_path": str(ADAPTERS / "patterns")})
    assert status == 200, answer
    for _ in range(3):
        assert near(scored(server, golden, "fresh"), golden["logprobs"])
        status, answer = ask(server, golden, "fresh")
        assert status == 200 and near(logprobs(answer)[:1], golden["logprobs"][:1])
    body = {"lora_name": "fresh", "lora_path": str(ADAPTERS / "some_layers"), "load_inplace": True}
    assert server.post("/v1/load_lora_adapter", body)[0] == 200
    other = greedy_of(ADAPTERS / "some_layers")
    assert near(scored(server, other, "fresh"), other["logprobs"])
    assert server.post("/unload_lora_adapter", {"lora_name": "fresh"})[0] == 200
    base = greedy_of(MODEL)
    assert near(scored(server, base, None), base["logprobs"])

"""Adapters that requests of a running `slime serve` name: PEFT's answers, batches that mix them, loading and unloading."""

import json
import threading
from pathlib import Path

import pytest
from server_process import ROOT, Server

MODEL = ROOT / "tests/fixtures/models/qwen3"
ADAPTERS = ROOT / "tests/fixtures/lora/qwen3"
NAMES = {"qv": "qv_r8", "all": "all_linear_rslora"}


def greedy_of(folder: Path):
    return json.loads((folder / "golden.json").read_text())["greedy"]


@pytest.fixture(scope="module", params=[1, 2], ids=["one_rank", "two_ranks"])
def server(request):
    paths = [f"{name}={ADAPTERS / folder}" for name, folder in NAMES.items()]
    flags = ["--skip-tokenizer-init", "--dtype", "float32", "--served-model-name", "base", "--weights-root", str(ADAPTERS)]
    with Server(str(MODEL), *flags, "--tp-size", str(request.param), "--lora-paths", *paths) as running:
        yield running


def ask(server, golden, name=None, **more):
    params = {"max_new_tokens": len(golden["tokens"]), "temperature": 0, "ignore_eos": True}
    body = {"input_ids": golden["prompt"], "sampling_params": params, "return_logprob": True, **more}
    if name is not None:
        body["lora_path"] = name
    return server.post("/generate", body)


def ids_of(answer):
    return [token for _, token, *_ in answer["meta_info"]["output_token_logprobs"]]


def test_greedy_tokens_are_those_of_peft(server):
    for name, folder in NAMES.items():
        golden = greedy_of(ADAPTERS / folder)
        status, answer = ask(server, golden, name)
        assert status == 200, answer
        assert ids_of(answer) == golden["tokens"]
        for (logprob, *_), expected in zip(answer["meta_info"]["output_token_logprobs"], golden["logprobs"]):
            assert abs(logprob - expected) < 1e-4
    golden = greedy_of(MODEL)
    assert ids_of(ask(server, golden)[1]) == golden["tokens"]


def test_each_row_of_a_mixed_batch_is_that_row_alone(server):
    golden = greedy_of(ADAPTERS / "qv_r8")
    names = ["qv", None, "all", "qv", "all", None]
    params = {"max_new_tokens": 24, "temperature": 0, "ignore_eos": True}
    prompts = [[*golden["prompt"], 7 + i] for i in range(len(names))]
    body = {"input_ids": prompts, "lora_path": names, "sampling_params": params, "return_logprob": True, "logprob_start_len": 0}
    status, mixed = server.post("/generate", body)
    assert status == 200, mixed
    assert server.post("/flush_cache")[0] == 200
    for prompt, name, row in zip(prompts, names, mixed):
        alone = server.post("/generate", {**body, "input_ids": [prompt], "lora_path": [name]})[1][0]
        for kind in ("output_token_logprobs", "input_token_logprobs"):
            assert alone["meta_info"][kind] == row["meta_info"][kind], name


def test_prefixes_are_shared_within_an_adapter_alone(server):
    prompt = list(range(5, 105))
    golden = {"prompt": prompt, "tokens": [0]}
    assert server.post("/flush_cache")[0] == 200
    cached = [ask(server, golden, name)[1]["meta_info"]["cached_tokens"] for name in ("qv", "all", None, "qv")]
    assert cached[:3] == [0, 0, 0] and cached[3] > 64


def test_an_unknown_name_is_404_with_the_names_that_there_are(server):
    status, answer = ask(server, greedy_of(MODEL), "nobody")
    assert status == 404 and "all, qv" in json.dumps(answer), answer


def test_models_are_listed_with_their_adapters(server):
    status, answer = server.get("/v1/models")
    assert status == 200
    assert {card["id"]: card["parent"] for card in answer["data"]} == {"base": None, "all": "base", "qv": "base"}


def test_adapters_come_and_go_while_requests_run(server):
    golden = greedy_of(ADAPTERS / "patterns")
    load = {"lora_name": "fresh", "lora_path": str(ADAPTERS / "patterns")}
    status, answer = server.post("/load_lora_adapter", load)
    assert status == 200 and answer["success"] and "fresh" in answer["loaded_adapters"], answer
    assert server.post("/load_lora_adapter", load)[0] == 400  # it is loaded
    assert ids_of(ask(server, golden, "fresh")[1]) == golden["tokens"]

    # Another version under the same name: nothing of the first is left in what is cached.
    status, text = server.post("/v1/load_lora_adapter", {**load, "lora_path": str(ADAPTERS / "some_layers"), "load_inplace": True})
    assert status == 200, text
    other = greedy_of(ADAPTERS / "some_layers")
    assert ids_of(ask(server, other, "fresh")[1]) == other["tokens"]

    assert server.post("/unload_lora_adapter", {"lora_name": "fresh"})[0] == 200
    assert ask(server, golden, "fresh")[0] == 404
    assert server.post("/unload_lora_adapter", {"lora_name": "fresh"})[0] == 404


def test_replacing_an_adapter_under_load_mixes_no_versions(server):
    folders = ["qv_r8", "some_layers"]
    answers = [tuple(greedy_of(ADAPTERS / folder)["tokens"]) for folder in folders]
    prompt = greedy_of(ADAPTERS / folders[0])
    assert prompt["prompt"] == greedy_of(ADAPTERS / folders[1])["prompt"]
    body = {"lora_name": "moving", "lora_path": str(ADAPTERS / folders[0]), "load_inplace": True}
    assert server.post("/load_lora_adapter", body)[0] == 200
    ended, wrong = threading.Event(), []

    def draw():
        while not ended.is_set():
            status, answer = ask(server, prompt, "moving")
            if status != 200 or tuple(ids_of(answer)) not in answers:
                wrong.append((status, answer))

    threads = [threading.Thread(target=draw) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(30):
        body["lora_path"] = str(ADAPTERS / folders[i % 2])
        status, answer = server.post("/load_lora_adapter", body)
        assert status == 200, answer
    ended.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


def test_what_is_no_adapter_of_the_model_is_refused_with_its_names(server):
    status, answer = server.post("/load_lora_adapter", {"lora_name": "dora", "lora_path": str(ADAPTERS / "dora")})
    assert status == 400 and "use_dora" in json.dumps(answer), answer
    status, answer = server.post("/load_lora_adapter", {"lora_name": "outside", "lora_path": str(ROOT / "tests/fixtures/lora/llama/tied_head")})
    assert status == 400 and "lora_path" in json.dumps(answer), answer


def test_ranks_give_all_requests_one_adapter():
    golden = greedy_of(ADAPTERS / "all_linear_rslora")
    with Server(str(MODEL), "--skip-tokenizer-init", "--dtype", "float32", "--tp-size", "2", "--adapter", str(ADAPTERS / "all_linear_rslora")) as running:
        status, answer = ask(running, golden)
        assert status == 200 and ids_of(answer) == golden["tokens"], answer

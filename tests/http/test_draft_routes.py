"""A server that drafts (`--speculative-algorithm NGRAM`, NEXTN, EAGLE3) answers what one without drafts does, and tells of its drafts."""

import subprocess
import sys

import pytest
from server_process import PROGRAM, ROOT, Server
from test_serve import make_model

DRAFTS = ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "5", "--speculative-always"]
PROMPT = [40, 41, 42, 40, 41]
FORMS = {
    "greedy": {"temperature": 0},
    "drawn": {"temperature": 1.0},
    "warm, cut": {"temperature": 0.7, "top_p": 0.9, "top_k": 20},
    "min_p": {"temperature": 1.0, "min_p": 0.01},
    "penalties": {"temperature": 0.8, "frequency_penalty": 0.4, "presence_penalty": 0.2, "repetition_penalty": 1.1},
    "a bias": {"temperature": 0.5, "logit_bias": {"43": 2.0}},
    "a least length": {"temperature": 1.0, "min_new_tokens": 20},
    "stopped by a string": {"temperature": 1.0, "stop": ["a", "e"], "ignore_eos": False},
}
SPEC = {
    "spec_verify_ct", "spec_num_proposed_drafts", "spec_num_correct_drafts", "spec_draft_token_num", "spec_accept_token_num",
    "spec_accept_rate", "spec_accept_length",
}  # fmt: skip


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Without drafts, and with them."""
    model = str(make_model(tmp_path_factory.mktemp("drafts")))
    with Server(model, "--dtype", "float32") as plain, Server(model, "--dtype", "float32", *DRAFTS) as drafting:
        yield plain, drafting


def body_of(form, seed=11, **fields):
    params = {"max_new_tokens": 48, "ignore_eos": True, "sampling_seed": seed, **FORMS[form]}
    return {"input_ids": PROMPT, "return_logprob": True, "sampling_params": params, **fields}


def ask(server, body):
    status, reply = server.post("/generate", body)
    assert status == 200, reply
    return reply


def what_was_drawn(reply):
    meta = reply["meta_info"]
    return reply["text"], reply["output_ids"], meta["output_token_logprobs"], meta["finish_reason"], meta["completion_tokens"]


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_with_drafts_is_the_one_without(servers, form):
    plain, drafting = servers
    expected = ask(plain, body_of(form))
    first = ask(drafting, body_of(form))
    again = ask(drafting, body_of(form))  # which the first one is a perfect source for
    assert what_was_drawn(first) == what_was_drawn(again) == what_was_drawn(expected)
    assert not SPEC & expected["meta_info"].keys()
    for reply in (first, again):
        meta = reply["meta_info"]
        assert SPEC <= meta.keys()
        assert meta["spec_verify_ct"] + meta["spec_accept_token_num"] == meta["completion_tokens"]
        assert meta["spec_accept_token_num"] == meta["spec_num_correct_drafts"] <= meta["spec_num_proposed_drafts"] == meta["spec_draft_token_num"]
        assert meta["spec_accept_length"] == pytest.approx(meta["completion_tokens"] / meta["spec_verify_ct"])
    if again["meta_info"]["completion_tokens"] > 8:
        assert again["meta_info"]["spec_accept_length"] > 1 and again["meta_info"]["spec_accept_rate"] > 0


def test_streams_and_answers_side_by_side_are_the_same(servers):
    plain, drafting = servers
    for server in servers:
        frames = list(server.frames("/generate", body_of("drawn", seed=5, stream=True)))
        assert what_was_drawn(frames[-1]) == what_was_drawn(ask(plain, body_of("drawn", seed=5)))
    batch = {**body_of("drawn"), "input_ids": [PROMPT, PROMPT[:3], PROMPT]}
    batch["sampling_params"] = [{**batch["sampling_params"], "sampling_seed": seed} for seed in (1, 2, 3)]
    assert [what_was_drawn(reply) for reply in ask(drafting, batch)] == [what_was_drawn(reply) for reply in ask(plain, batch)]


def test_metrics_and_the_servers_state_tell_of_drafts(servers):
    plain, drafting = servers
    ask(drafting, body_of("greedy"))
    ask(plain, body_of("greedy"))
    status, text = drafting.get("/metrics")
    assert status == 200 and "sglang:spec_accept_length{" in text and "sglang:spec_accept_rate{" in text
    assert drafting.get("/server_info")[1]["internal_states"][0]["avg_spec_accept_length"] >= 1
    assert "sglang:spec_" not in plain.get("/metrics")[1]


def make_layered(model, *more):
    """A model with a draft layer that says what the model repeats."""
    made = [sys.executable, ROOT / "tools" / "tiny_model.py", model, "--draft-layer", "--hidden", "128", *more]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    return model


@pytest.fixture(scope="module")
def layered(tmp_path_factory):
    """Without drafts, with those of the model's layer, and with those of two ranks; and a folder that they read weights of."""
    folder = tmp_path_factory.mktemp("layer")
    model = str(make_layered(folder / "model"))
    eagle = ["--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]
    layer = [*eagle, "--speculative-num-draft-tokens", "4", "--speculative-always"]
    root = ["--weights-root", str(folder)]
    with Server(model, *root) as plain, Server(model, *root, *layer) as drafting, Server(model, *layer, "--tp-size", "2") as ranks:
        yield plain, drafting, ranks, folder


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_with_the_models_draft_layer_is_the_one_without(layered, form):
    plain, drafting, _, _ = layered
    expected, reply = ask(plain, body_of(form)), ask(drafting, body_of(form))
    assert what_was_drawn(reply) == what_was_drawn(expected)
    meta = reply["meta_info"]
    assert SPEC <= meta.keys() and meta["spec_num_proposed_drafts"] > 0
    assert meta["spec_num_proposed_drafts"] <= 3 * meta["spec_verify_ct"]
    if form == "greedy":  # this model repeats its last token, and its layer says so
        assert meta["spec_accept_length"] > 2


def test_ranks_draft_with_their_parts_of_the_layer(layered):
    plain, _, ranks, _ = layered
    expected, reply = ask(plain, body_of("greedy")), ask(ranks, body_of("greedy"))
    assert reply["output_ids"] == expected["output_ids"]
    assert reply["meta_info"]["spec_accept_length"] > 2


def test_new_weights_of_a_directory_bring_the_layers(layered):
    plain, drafting, _, folder = layered
    body = {"model_path": str(make_layered(folder / "second", "--seed", "2"))}
    for server in (plain, drafting):
        status, reply = server.post("/update_weights_from_disk", body)
        assert status == 200 and reply["success"], reply
    for form in ("greedy", "drawn"):
        reply = ask(drafting, body_of(form))
        assert what_was_drawn(reply) == what_was_drawn(ask(plain, body_of(form)))
        assert reply["meta_info"]["spec_num_proposed_drafts"] > 0


@pytest.fixture(scope="module")
def with_model(tmp_path_factory):
    """Without drafts, and with those of an EAGLE-3 draft model that says what the model repeats; and their folder."""
    folder = tmp_path_factory.mktemp("eagle3")
    model, draft = folder / "model", folder / "draft"
    subprocess.run([sys.executable, ROOT / "tools" / "tiny_model.py", model], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([sys.executable, ROOT / "tools" / "tiny_eagle3.py", model, draft], check=True)
    eagle = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(draft), "--speculative-num-steps", "3"]
    root = ["--weights-root", str(folder)]
    with Server(str(model), *root) as plain, Server(str(model), *root, *eagle, "--speculative-always") as drafting:
        yield plain, drafting, folder


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_with_an_eagle3_model_is_the_one_without(with_model, form):
    plain, drafting, _ = with_model
    expected, reply = ask(plain, body_of(form)), ask(drafting, body_of(form))
    assert what_was_drawn(reply) == what_was_drawn(expected)
    meta = reply["meta_info"]
    assert SPEC <= meta.keys() and meta["spec_num_proposed_drafts"] > 0
    assert meta["spec_num_proposed_drafts"] <= 3 * meta["spec_verify_ct"]
    if form == "greedy":  # this model repeats its last token, and its draft model says so
        assert meta["spec_accept_length"] > 3 and meta["spec_accept_rate"] > 0.9


def test_new_weights_of_a_directory_leave_the_eagle3_model(with_model):
    plain, drafting, folder = with_model
    second = folder / "second"
    subprocess.run([sys.executable, ROOT / "tools" / "tiny_model.py", second, "--seed", "2"], check=True, stdout=subprocess.DEVNULL)
    for server in (plain, drafting):
        status, reply = server.post("/update_weights_from_disk", {"model_path": str(second)})
        assert status == 200 and reply["success"], reply
    for form in ("greedy", "drawn"):
        reply = ask(drafting, body_of(form))
        assert what_was_drawn(reply) == what_was_drawn(ask(plain, body_of(form)))
        assert reply["meta_info"]["spec_num_proposed_drafts"] > 0


def test_a_directory_that_is_no_eagle3_model_ends_the_server_at_once(with_model):
    _, _, folder = with_model
    words = ["serve", "--device", "cpu", "--model", str(folder / "model"), "--speculative-algorithm", "EAGLE", "--speculative-draft-model-path"]
    for path, says in ((folder / "second", "no EAGLE-3 draft model that is known"), (folder, "has no config.json")):
        done = subprocess.run([str(PROGRAM), *words, str(path)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2, done.stdout + done.stderr
        (line,) = (line for line in done.stderr.splitlines() if says in line)
        assert f"--speculative-draft-model-path: {path}: " in line, line
    words[words.index("EAGLE")] = "EAGLE3"
    done = subprocess.run([str(PROGRAM), *words, str(folder / "model")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "is the model itself" in done.stderr, done.stderr

"""`slime tinker`: recorded requests of a Tinker client, in JSON, and the rules of the protocol."""

import json
import math
import shutil
import struct
import urllib.error
import urllib.request

import pytest
from conftest import ROOT, SLIME
from slime.loop.child import Child

FIXTURES = ROOT / "tests" / "fixtures" / "tinker"
QWEN3 = ROOT / "tests" / "fixtures" / "models" / "qwen3"
FLAGS = ["--device", "cpu", "--fp32", "--num-threads", "1"]
LORA_SCALE = 32 / 4


def read_tensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    head = json.loads(data[8 : 8 + size])
    head.pop("__metadata__", None)
    tensors = {}
    for name, entry in head.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], data[8 + size + begin : 8 + size + end])
    return tensors


def write_tensors(path, tensors):
    head, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def floats(tensor):
    dtype, _, data = tensor
    if dtype == "BF16":
        data = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def merge(model, adapter):
    """W + scale * B A, for each matrix that the adapter has."""
    weights, parts = read_tensors(model), read_tensors(adapter)
    for name in [each for each in parts if each.endswith("lora_A.weight")]:
        target = name.replace("base_model.model.", "").replace("lora_A.", "")
        a, b = floats(parts[name]), floats(parts[name.replace("lora_A", "lora_B")])
        rank, columns = parts[name][1]
        _, shape, _ = weights[target]
        merged = floats(weights[target])
        for row in range(shape[0]):
            for r in range(rank):
                factor = LORA_SCALE * b[row * rank + r]
                for column in range(columns):
                    merged[row * columns + column] += factor * a[r * columns + column]
        weights[target] = ("F32", shape, struct.pack(f"<{len(merged)}f", *merged))
    return weights


@pytest.fixture(scope="module")
def models(work):
    """The model of the transcripts, and the same with the seed adapter merged into it; with a tokenizer, which the fixture lacks."""
    folders = {}
    for name in ("base", "seeded"):
        folders[name] = work / f"tinker-{name}"
        folders[name].mkdir()
        shutil.copy(QWEN3 / "config.json", folders[name])
        for file in (work / "model").glob("tokenizer*"):
            shutil.copy(file, folders[name])
    shutil.copy(QWEN3 / "model.safetensors", folders["base"])
    write_tensors(folders["seeded"] / "model.safetensors", merge(QWEN3 / "model.safetensors", FIXTURES / "seed_adapter.safetensors"))
    return folders


class Client:
    """Requests as the recorded client sends them."""

    def __init__(self, model):
        self.model = str(model)
        self.child = Child(["--hf-checkpoint", self.model, *FLAGS], False, str(SLIME), command="tinker")
        self.address = self.child.wait_for_door()

    def call(self, path, body=None, method=None, **headers):
        sent = {"Content-Type": "application/json", "X-API-Key": self.address["token"], **headers}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address["url"] + path, data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def post(self, route, **body):
        status, answer = self.call(f"/api/v1/{route}", body)
        assert status == 200, answer
        return answer

    def result(self, request_id):
        while (answer := self.post("retrieve_future", request_id=request_id)).get("type") == "try_again":
            pass
        return answer

    def start_model(self):
        session = self.post("create_session", tags=[], sdk_version="0.38.0", type="create_session")["session_id"]
        created = self.post("create_model", session_id=session, model_seq_id=0, base_model=self.model, lora_config={"rank": 0})
        return session, self.result(created["request_id"])["model_id"]


@pytest.fixture(scope="module")
def clients(models):
    made = {name: Client(folder) for name, folder in models.items()}
    yield made
    for client in made.values():
        client.child.kill()


def transcript(name):
    return json.loads((FIXTURES / f"{name}.json").read_text())["exchanges"]


def datum(recorded):
    inputs = {
        name: {"data": each["data"], "dtype": each["dtype"].removeprefix("DTYPE_").lower(), "shape": each["shape"]}
        for name, each in recorded["inputs"].items()
    }
    return {"model_input": {"chunks": [{"type": "encoded_text", "tokens": recorded["tokens"]}]}, "loss_fn_inputs": inputs}


def near(one, two):
    return len(one) == len(two) and all(math.isclose(a, b, abs_tol=1e-4) for a, b in zip(one, two))


def check_pass(answer, recorded):
    assert math.isclose(answer["metrics"]["loss:sum"], recorded["metrics"]["loss:sum"], abs_tol=1e-3)
    for own, output in zip(answer["loss_fn_outputs"], recorded["outputs"]):
        for field, values in output.items():
            assert near(own[field]["data"], values), field


def check_samples(answer, recorded, is_greedy):
    for own, sequence in zip(answer["sequences"], recorded["sequences"]):
        if is_greedy:
            assert own["tokens"] == sequence["tokens"] and own["stop_reason"] == sequence["stop_reason"]
            assert near(own["logprobs"], sequence["logprobs"])
        assert len(own["logprobs"]) == len(own["tokens"])
    if recorded.get("prompt_logprobs"):
        assert answer["prompt_logprobs"][0] is None and near(answer["prompt_logprobs"][1:], recorded["prompt_logprobs"][1:])


def replay(client, exchanges):
    """Up to the first update; returns how many results were compared."""
    session, model = client.start_model()
    samplers, requests, compared = {}, {}, 0
    for each in exchanges:
        path, body, answer = each["path"].removeprefix("/api/v1/"), each.get("request") or {}, each["response"]
        if path == "optim_step":
            break
        if path == "forward_backward":
            ready = {
                "model_id": model,
                "seq_id": body["seq_id"],
                "forward_only": body["forward_only"],
                "forward_backward_input": {"data": [datum(one) for one in body["data"]], "loss_fn": body["loss_fn"], "loss_fn_config": body["loss_fn_config"]},
            }
            requests[answer["request_id"]] = (client.post(path, **ready)["request_id"], "pass", False)
        elif path == "save_weights_for_sampler":
            requests[answer["request_id"]] = (client.post(path, model_id=model, seq_id=body["seq_id"])["request_id"], "sampler", False)
        elif path == "create_sampling_session":
            made = client.post(path, session_id=session, base_model=client.model)
            samplers[answer["sampling_session_id"]] = made["sampling_session_id"]
        elif path == "asample":
            ready = {**body, "sampling_session_id": samplers[body["sampling_session_id"]], "topk_prompt_logprobs": 0}
            sent = client.post(path, **ready)
            assert len(sent["sample_sequence_ids"]) == len(answer["sample_sequence_ids"]) == body["num_samples"]
            assert client.post(path, **ready)["request_id"] == sent["request_id"]  # the same seq_id is the same request
            requests[answer["request_id"]] = (sent["request_id"], "samples", body["sampling_params"]["temperature"] == 0)
        elif path == "retrieve_future" and body["request_id"] in requests:
            own, kind, is_greedy = requests[body["request_id"]]
            result = client.result(own)
            if kind == "sampler":
                samplers[answer["sampling_session_id"]] = result["sampling_session_id"]
                continue
            (check_pass if kind == "pass" else lambda own, recorded: check_samples(own, recorded, is_greedy))(result, answer)
            compared += 1
    # What was asked for before the update is answered behind it in the transcript.
    for each in exchanges:
        asked = (each.get("request") or {}).get("request_id")
        if asked in requests and requests[asked][1] == "pass":
            check_pass(client.result(requests[asked][0]), each["response"])
            compared += 1
    client.post(f"sessions/{session}/finish", reason={"type": "success"})
    return compared


@pytest.mark.parametrize("name", ["start", "sampling_base"])
def test_recorded_requests_of_the_base_model_have_the_recorded_answers(clients, name):
    assert replay(clients["base"], transcript(name)) >= (5 if name == "sampling_base" else 1)


@pytest.mark.parametrize("name", ["sft_step", "rl_step", "ppo_default_step", "gradient_accumulation"])
def test_recorded_passes_over_the_seeded_weights_have_the_recorded_answers(clients, name):
    assert replay(clients["seeded"], transcript(name)) >= 1


def pass_of(tokens, targets, loss_fn="cross_entropy", **inputs):
    columns = {"target_tokens": targets, **(inputs or {"weights": [1.0] * len(targets)})}
    tensors = {name: {"data": values, "dtype": "float32", "shape": [len(values)]} for name, values in columns.items()}
    data = [{"model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens}]}, "loss_fn_inputs": tensors}]
    return {"data": data, "loss_fn": loss_fn, "loss_fn_config": {}}


def test_requests_are_done_in_the_order_of_their_numbers_and_each_once(clients):
    client = clients["base"]
    session, model = client.start_model()
    step = {"adam_params": {"learning_rate": 1e-2, "eps": 1e-8}}
    body = {"forward_backward_input": pass_of([5, 6, 7], [6, 7, 8])}
    late = client.post("forward_backward", model_id=model, seq_id=3, forward_only=True, **body)
    middle = client.post("optim_step", model_id=model, seq_id=2, **step)
    first = client.post("forward_backward", model_id=model, seq_id=1, **body)
    assert client.post("optim_step", model_id=model, seq_id=2, **step)["request_id"] == middle["request_id"]
    before, after = (client.result(each["request_id"])["metrics"]["loss:sum"] for each in (first, late))
    assert client.result(middle["request_id"])["metrics"]["step:max"] == 1 and after < before
    client.post(f"sessions/{session}/finish", reason={"type": "success"})


def test_a_model_begins_without_the_gradients_of_the_one_before(clients):
    client = clients["base"]
    session, model = client.start_model()
    passed = client.post("forward_backward", model_id=model, seq_id=1, forward_backward_input=pass_of([5, 6, 7], [6, 7, 8]))
    client.result(passed["request_id"])
    client.post(f"sessions/{session}/finish", reason={"type": "success"})
    session, model = client.start_model()
    step = client.post("optim_step", model_id=model, seq_id=1, adam_params={"learning_rate": 0})
    assert client.result(step["request_id"])["metrics"]["grad_norm:mean"] == 0
    client.post(f"sessions/{session}/finish", reason={"type": "success"})


def test_what_cannot_be_is_refused_in_the_words_of_the_protocol(clients):
    client = clients["base"]
    session, model = client.start_model()
    unknown = {"session_id": session, "model_seq_id": 1, "base_model": "nobody/nothing"}
    assert client.call("/api/v1/create_model", unknown)[0] == 400
    ranked = {"session_id": session, "model_seq_id": 2, "base_model": client.model, "lora_config": {"rank": 4}}
    status, answer = client.call("/api/v1/create_model", ranked)
    assert status == 400 and "rank 0 trains all weights" in answer["detail"]
    second = client.result(client.post("create_model", session_id=session, model_seq_id=3, base_model=client.model)["request_id"])
    assert second["category"] == "user" and "is trained already" in second["error"]
    assert client.call("/api/v1/create_sampling_session", {"session_id": session, "model_path": "tinker://nothing/weights/x"})[0] == 404
    assert client.call("/api/v1/create_sampling_session", {"session_id": session, "model_path": "tinker://../weights/../x"})[0] == 404
    assert client.call("/api/v1/retrieve_future", {"request_id": "req-999999"})[0] == 404
    assert client.call("/api/v1/optim_step", {"x": 1}, **{"Content-Type": "application/x-protobuf"})[0] == 415
    assert client.call("/api/v1/forward_backward", {"x": 1}, **{"Content-Encoding": "zstd"})[0] == 415
    assert client.call("/api/v1/create_session", {}, **{"X-API-Key": "tml-other"})[0] == 401
    # What is wrong with a datum is the future's to say, and later requests go on.
    wrong = {
        "target_tokens: has 2 numbers, and there are 3 positions": pass_of([5, 6, 7], [6, 7]),
        "vocabulary": pass_of([5, 6, 7], [6, 7, 100000]),
        "importance_sampling needs it": pass_of([5, 6, 7], [6, 7, 8], "importance_sampling", advantages=[1, 1, 1]),
        "loss_fn nothing": pass_of([5, 6, 7], [6, 7, 8], "nothing"),
    }
    for number, (said, body) in enumerate(wrong.items(), 1):
        failed = client.result(client.post("forward_backward", model_id=model, seq_id=number, forward_backward_input=body)["request_id"])
        assert failed["category"] == "user" and said in failed["error"], failed
    good = client.post("forward_backward", model_id=model, seq_id=len(wrong) + 1, forward_backward_input=pass_of([5, 6, 7], [6, 7, 8]))
    assert "metrics" in client.result(good["request_id"])
    client.post(f"sessions/{session}/finish", reason={"type": "success"})


def test_weights_saved_by_name_are_sampled_and_loaded_by_name(clients):
    client = clients["base"]
    session, model = client.start_model()
    client.post("forward_backward", model_id=model, seq_id=1, forward_backward_input=pass_of([5, 6, 7], [6, 7, 8]))
    client.post("optim_step", model_id=model, seq_id=2, adam_params={"learning_rate": 1e-2, "eps": 1e-8})
    saved = client.result(client.post("save_weights", model_id=model, seq_id=3, path="first")["request_id"])
    assert saved["path"] == f"tinker://{model}/weights/first"
    again = client.result(client.post("save_weights", model_id=model, seq_id=4, path="first")["request_id"])
    assert again["category"] == "user" and "is there already" in again["error"]
    assert client.post("weights_info", tinker_path=saved["path"])["is_lora"] is False
    sampler = client.post("create_sampling_session", session_id=session, model_path=saved["path"])["sampling_session_id"]
    status, described = client.call(f"/api/v1/samplers/{sampler}")
    assert status == 200 and described["model_path"] == saved["path"]
    asked = {"sampling_session_id": sampler, "prompt": {"chunks": [{"tokens": [5, 6, 7, 8]}]}, "prompt_logprobs": True}
    sampled = client.result(client.post("asample", sampling_params={"max_tokens": 1}, **asked)["request_id"])
    trained = client.post("forward", model_id=model, seq_id=5, forward_input=pass_of([5, 6, 7], [6, 7, 8]))
    assert near(sampled["prompt_logprobs"][1:], client.result(trained["request_id"])["loss_fn_outputs"][0]["logprobs"]["data"])
    client.post(f"sessions/{session}/finish", reason={"type": "success"})
    other = client.post("create_session", tags=[])["session_id"]
    loaded = client.post("load_weights", session_id=other, model_seq_id=0, path=saved["path"], optimizer=True)
    model = client.result(loaded["request_id"])["model_id"]
    step = client.post("optim_step", model_id=model, seq_id=1, adam_params={"learning_rate": 0})
    assert client.result(step["request_id"])["metrics"]["step:max"] == 2
    client.post(f"sessions/{other}/finish", reason={"type": "success"})

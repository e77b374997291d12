"""`slime tinker`: what a Tinker client sent byte by byte, adapters and Protocol Buffers included, has the recorded answers."""

import base64
import hashlib
import json
import math
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import SLIME
from tinker_program import FIXTURES, KEY, NAME, TinkerProgram, field, fields, pass_message, read_pass, read_samples, write_model, write_store

MESSAGES = FIXTURES / "messages"


@pytest.fixture(scope="module")
def model(work, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tinker") / "wire"
    write_model(folder, work / "model")
    return folder


@pytest.fixture
def program(model, tmp_path):
    write_store(tmp_path / "store")
    started = TinkerProgram(SLIME, model, tmp_path / "store")
    yield started
    started.stop()


@pytest.fixture
def start(model, tmp_path):
    """Starts one more; each of a store has to end before the next."""
    started = []

    def start_one(store, *flags):
        started.append(TinkerProgram(SLIME, model, tmp_path / store, *flags))
        return started[-1]

    yield start_one
    for each in started:
        each.stop()


def near(one, two):
    return len(one) == len(two) and all(math.isclose(a, b, abs_tol=1e-4, rel_tol=1e-5) for a, b in zip(one, two))


def flat(values):
    return [each for value in values for each in flat(value)] if isinstance(values, list) else [values]


def check_pass(message, recorded):
    metrics, outputs = read_pass(message)
    assert math.isclose(metrics["loss:sum"], recorded["metrics"]["loss:sum"], abs_tol=1e-3, rel_tol=1e-5)
    assert len(outputs) == len(recorded["outputs"])
    for own, output in zip(outputs, recorded["outputs"]):
        for name, values in output.items():
            assert near(own[name], values), name


def check_samples(message, recorded, is_greedy, is_updated):
    made = read_samples(message)
    for own, sequence in zip(made["sequences"], recorded["sequences"], strict=True):
        if is_greedy:
            same = 0
            while same < len(sequence["tokens"]) and own["tokens"][same] == sequence["tokens"][same]:
                same += 1
            # Behind an update near ties may fall the other way.
            assert same == len(sequence["tokens"]) or is_updated, (own, sequence)
            assert near(own["logprobs"][:same], sequence["logprobs"][:same])
        assert len(own["logprobs"]) == len(own["tokens"])
    if "prompt_logprobs" in recorded:
        assert near(made["prompt_logprobs"][1:], recorded["prompt_logprobs"][1:])
    if "topk_prompt_logprobs" in recorded:
        assert made["topk_prompt_logprobs"][0] is None
        for own, best in zip(made["topk_prompt_logprobs"][1:], recorded["topk_prompt_logprobs"][1:], strict=True):
            assert [each[0] for each in own] == [each[0] for each in best]
            assert near(flat(own), flat(best))


def replay(program, exchanges):
    """Sends them in their order; returns how many results were compared. Ids of the recorder are renamed."""
    names, asked, compared, is_updated = {}, {}, 0, False

    def renamed(value):
        if isinstance(value, dict):
            return {key: renamed(each) for key, each in value.items()}
        return names.get(value, value) if isinstance(value, str) else value

    for each in exchanges:
        path, recorded = each["path"], each.get("answer") or each.get("message")
        for old, new in names.items():
            path = path.replace(old, new)
        if "base64" in each:
            raw = base64.b64decode(each["base64"])
            old = dict(fields(raw))[1]
            assert raw.startswith(field(1, old))
            body = field(1, names[old.decode()]) + raw[len(field(1, old)) :]
        else:
            body = renamed(each["json"]) if "json" in each else None
            if path == "asample":
                asked["next"] = body["sampling_params"]["temperature"] == 0
        if path == "optim_step":
            is_updated = True
        if path == "retrieve_future" and (recorded or {}).get("type") == "try_again":
            continue
        if path == "retrieve_future":
            answer = program.result(body["request_id"])
            if isinstance(answer, bytes):
                compared += 1
                if "metrics" in recorded:
                    check_pass(answer, recorded)
                else:
                    check_samples(answer, recorded, asked[body["request_id"]], is_updated)
                continue
        else:
            status, answer = program.call(path, body, each["method"], {})
            assert status == each["status"], answer
        if "error" in (recorded or {}):
            assert answer["category"] == recorded["category"]
            compared += 1
        for key in ("session_id", "request_id", "model_id", "sampling_session_id"):
            if key in (recorded or {}):
                names[recorded[key]] = answer[key]
        if "path" in (recorded or {}) and recorded["path"] != answer["path"]:
            names[recorded["path"]] = answer["path"]
        if path == "asample":
            assert len(answer["sample_sequence_ids"]) == len(recorded["sample_sequence_ids"])
            asked[answer["request_id"]] = asked["next"]
        if path == "get_info":
            assert answer["is_lora"] == recorded["is_lora"] and answer["lora_rank"] == recorded["lora_rank"]
        if path == "weights_info":
            assert answer == recorded
        if path.endswith("/checkpoints"):
            own, other = ({row["checkpoint_id"] for row in listed["checkpoints"]} for listed in (answer, recorded))
            assert own and own <= other
    return compared


@pytest.mark.parametrize("name", sorted(file.stem for file in MESSAGES.glob("*.json")))
def test_recorded_messages_have_the_recorded_answers(program, name):
    assert replay(program, json.loads((MESSAGES / f"{name}.json").read_text())) >= 1


def open_model(program, rank=4, user_metadata=None, **lora):
    session = program.post("create_session", tags=[], sdk_version="0.38.0", type="create_session")["session_id"]
    config = {"rank": rank, "seed": 1, **lora}
    made = program.post("create_model", session_id=session, model_seq_id=0, base_model=NAME, lora_config=config, user_metadata=user_metadata)
    return session, program.result(made["request_id"])["model_id"]


DATA = [([5, 6, 7], {"target_tokens": [6, 7, 8], "weights": [1.0, 1.0, 1.0]})]
OTHER = [([9, 4, 57, 214], {"target_tokens": [4, 57, 214, 12], "weights": [1.0, 0.0, 1.0, 1.0]})]
STEP = {"learning_rate": 1e-2, "eps": 1e-8}


def send(program, *arguments, **more):
    status, answer = program.call("forward_backward", pass_message(*arguments, **more))
    assert status == 200, answer
    return answer["request_id"]


def train(program, model, data, begin, steps=3):
    """The messages of the passes; each is answered before the next is sent."""
    made = []
    for i in range(steps):
        made.append(program.result(send(program, model, begin + 2 * i, data)))
        program.result(program.post("optim_step", model_id=model, seq_id=begin + 2 * i + 1, adam_params=STEP)["request_id"])
    return made


def test_two_adapters_over_one_base_learn_what_each_learns_alone(program):
    _, alone = open_model(program)
    expected = train(program, alone, DATA, 1)
    _, one = open_model(program)
    _, two = open_model(program, rank=8)
    made = []
    for i in range(3):
        made.append(program.result(send(program, one, 2 * i + 1, DATA)))
        train(program, two, OTHER, 2 * i + 1, steps=1)
        program.result(program.post("optim_step", model_id=one, seq_id=2 * i + 2, adam_params=STEP)["request_id"])
    assert made == expected  # byte for byte
    losses = [read_pass(each)[0]["loss:sum"] for each in made]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


def test_targets_need_not_be_the_next_tokens(program):
    weights = [0.0, 0.0, 1.0]
    usual = [([5, 6, 7], {"target_tokens": [6, 7, 8], "weights": weights})]
    zeros = [([5, 6, 7], {"target_tokens": [0, 0, 8], "weights": weights})]
    other = [([5, 6, 7], {"target_tokens": [6, 3, 8], "weights": [1.0, 1.0, 1.0]})]
    alone = [([5], {"target_tokens": [0], "weights": [1.0]}), ([5, 6], {"target_tokens": [7, 3], "weights": [1.0, 1.0]})]

    def log_probs(message):
        return [output["logprobs"] for output in read_pass(message)[1]]

    _, one = open_model(program)
    _, two = open_model(program)
    (first,) = log_probs(train(program, one, usual, 1, steps=1)[0])
    (second,) = log_probs(train(program, two, zeros, 1, steps=1)[0])
    assert second[2] == first[2] and second[0] != first[0]
    after = [log_probs(program.result(send(program, model, 3, usual + zeros + other + alone, forward_only=True))) for model in (one, two)]
    assert after[0] == after[1]  # what does not train changes nothing
    _, (zero, _, last), (six, three, eight), (zero_alone,), (_, three_alone) = after[0]
    assert near([zero, three, last], [zero_alone, three_alone, eight]) and six != zero
    losses = [read_pass(each)[0]["loss:sum"] for each in train(program, one, other, 4)]
    assert losses[-1] < losses[0]


def test_messages_that_come_in_another_order_add_up_in_that_of_their_numbers(program):
    _, model = open_model(program)
    expected = train(program, model, DATA + OTHER, 1, steps=1)[0]
    after = program.result(send(program, model, 3, DATA, forward_only=True))
    _, model = open_model(program)
    last = send(program, model, 4, DATA, forward_only=True)
    step = program.post("optim_step", model_id=model, seq_id=3, adam_params=STEP)["request_id"]
    second, first = send(program, model, 2, OTHER), send(program, model, 1, DATA)
    assert send(program, model, 2, OTHER) == second
    parts = [read_pass(program.result(each))[0]["loss:sum"] for each in (first, second)]
    assert math.isclose(sum(parts), read_pass(expected)[0]["loss:sum"], rel_tol=1e-6)
    assert "metrics" in program.result(step)
    assert near(read_pass(program.result(last))[1][0]["logprobs"], read_pass(after)[1][0]["logprobs"])


def test_a_message_that_comes_several_times_at_once_is_one_request(program):
    _, model = open_model(program)
    with ThreadPoolExecutor(8) as pool:
        for number in range(1, 11):
            futures = set(pool.map(lambda seq_id: send(program, model, seq_id, DATA), [number] * 8))
            assert len(futures) == 1
            assert read_pass(program.result(futures.pop()))[0]["loss:sum"] > 0


def sampler_of(program, model, seq_id, number):
    made = program.post("save_weights_for_sampler", model_id=model, seq_id=seq_id, sampling_session_seq_id=number)
    return program.result(made["request_id"])["sampling_session_id"]


def ask_for_scores(program, sampler, seq_id):
    """The id of the future. Waits for a model that is being restored, as clients do."""
    greedy = {"max_tokens": 4, "temperature": 0.0, "stop": []}
    asked = {"prompt": {"chunks": [{"type": "encoded_text", "tokens": [5, 6, 7, 8]}]}, "prompt_logprobs": True, "sampling_params": greedy}
    for _ in range(600):
        status, answer = program.call("asample", {"sampling_session_id": sampler, "seq_id": seq_id, **asked})
        if status != 503:
            break
        time.sleep(0.1)
    assert status == 200, answer
    return answer["request_id"]


def scores(program, sampler, seq_id):
    return program.result(ask_for_scores(program, sampler, seq_id))


def test_a_sampling_session_stays_with_its_snapshot(program):
    session, model = open_model(program)
    early = sampler_of(program, model, 1, 0)
    before = scores(program, early, 0)
    train(program, model, DATA, 2)
    late = sampler_of(program, model, 8, 1)
    base = program.post("create_sampling_session", session_id=session, sampling_session_seq_id=2, base_model=NAME)["sampling_session_id"]
    after = scores(program, late, 0)
    assert read_samples(scores(program, early, 1))["prompt_logprobs"] == read_samples(before)["prompt_logprobs"]
    # B begins at zero: an adapter that has learned nothing is the base.
    assert near(read_samples(scores(program, base, 0))["prompt_logprobs"][1:], read_samples(before)["prompt_logprobs"][1:])
    own = read_samples(after)["prompt_logprobs"][1:]
    assert sum(own) > sum(read_samples(before)["prompt_logprobs"][1:])
    passed = read_pass(program.result(send(program, model, 9, DATA, forward_only=True)))
    assert near(own, passed[1][0]["logprobs"])  # the sampler's numbers are the trainer's


def test_what_an_adapter_cannot_be_is_refused(program):
    session = program.post("create_session", tags=[], sdk_version="0.38.0", type="create_session")["session_id"]
    asked = {"session_id": session, "model_seq_id": 0, "base_model": NAME}
    status, answer = program.call("create_model", {**asked, "lora_config": {"rank": 4096}})
    assert status == 400 and "rank" in answer["detail"]
    nothing = {"rank": 4, "train_attn": False, "train_mlp": False, "train_unembed": False}
    refused = program.result(program.post("create_model", **asked, lora_config=nothing)["request_id"])
    assert refused["category"] == "user" and "leave nothing to train" in refused["error"]


def test_damaged_messages_are_refused_and_later_ones_are_done(program):
    _, model = open_model(program)
    whole = pass_message(model, 1, DATA)
    assert program.call("forward_backward", whole[:-3])[0] == 400
    assert program.call("forward_backward", b"\xff" * 20)[0] == 400
    cut = field(1, model) + field(2, 1) + field(4, "cross_entropy") + field(3, b"\x0a\x7f")
    status, accepted = program.call("forward_backward", cut)
    assert status == 200
    failed = program.result(accepted["request_id"])
    assert failed["category"] == "user" and "data[0]" in failed["error"]
    beyond = [([5, 6, 384], DATA[0][1])]
    assert "the vocabulary has" in program.result(send(program, model, 2, beyond))["error"]
    metrics, _ = read_pass(program.result(send(program, model, 3, DATA)))
    assert metrics["loss:sum"] > 0


def test_what_is_wrong_with_an_update_is_said_in_its_turn_and_holds_up_nothing(program):
    _, model = open_model(program)
    wrong = program.post("optim_step", model_id=model, seq_id=2, adam_params={"learning_rate": "fast"})["request_id"]
    passed = send(program, model, 3, DATA)
    first = send(program, model, 1, DATA)
    refused = program.result(wrong)
    assert refused["category"] == "user" and "learning_rate" in refused["error"]
    assert read_pass(program.result(first)) == read_pass(program.result(passed))


def test_what_a_key_has_made_is_not_there_for_another(program, tmp_path):
    session, model = open_model(program)
    kept = json.loads((tmp_path / "store" / ".service" / "sessions" / f"{session}.json").read_text())
    assert kept["owner"] == hashlib.sha256(KEY.encode()).hexdigest()
    sampler = sampler_of(program, model, 1, 0)
    saved = program.result(program.post("save_weights", model_id=model, seq_id=2, path="mine")["request_id"])["path"]
    future = send(program, model, 3, DATA)
    other = {"X-API-Key": "tml-other"}
    asked = {"chunks": [{"type": "encoded_text", "tokens": [5]}]}
    for path, body in [
        ("get_info", {"model_id": model}),
        ("forward_backward", pass_message(model, 4, DATA)),
        ("retrieve_future", {"request_id": future}),
        ("asample", {"sampling_session_id": sampler, "prompt": asked}),
        ("create_model", {"session_id": session, "model_seq_id": 1, "base_model": NAME}),
        ("weights_info", {"tinker_path": saved}),
    ]:
        assert program.call(path, body, headers=other)[0] == 404, path
    opened = program.call("create_session", {}, headers=other)[1]["session_id"]
    made = {"session_id": opened, "model_seq_id": 0, "base_model": NAME, "lora_config": {"rank": 4}}
    assert program.call("create_model", made, headers=other)[0] == 200
    step = {"model_id": f"{opened}:train:0", "seq_id": 1, "adam_params": STEP, "requires": [future]}
    assert program.call("optim_step", step, headers=other) == (404, {"detail": f"{future}: there is none"})
    for model_id in (model, model.replace(":", "%3A"), model.replace(":", "%253A")):
        assert program.call(f"training_runs/{model_id}/checkpoints", method="GET", headers=other)[0] == 404, model_id
    assert program.call(f"training_runs/{model}/checkpoints/weights/mine", method="DELETE", headers=other)[0] == 404
    assert program.call("training_runs/%2e%2e/checkpoints", method="GET")[0] == 404
    runs = program.call("training_runs", method="GET", headers=other)[1]["training_runs"]
    assert {run["training_run_id"] for run in runs} <= {f"{opened}:train:0"}, runs  # there when it has been made


def test_a_journal_that_cannot_be_written_refuses_requests_and_ends_nothing(program, tmp_path):
    session, model = open_model(program)
    program.result(send(program, model, 1, DATA))
    store = tmp_path / "store"
    folders = [store / ".service" / kind for kind in ("sessions", "models", "samplers")] + [store / model.replace(":", "%3A") / "requests"]
    for folder in folders:
        folder.rename(folder.with_name(f"{folder.name}-aside"))
        folder.write_text("no folder")
    for path, body in [
        ("create_session", {}),
        ("create_model", {"session_id": session, "model_seq_id": 1, "base_model": NAME, "lora_config": {"rank": 4}}),
        ("create_sampling_session", {"session_id": session, "base_model": NAME}),
        ("forward_backward", pass_message(model, 2, DATA)),
        (f"sessions/{session}/finish", {}),
    ]:
        status, answer = program.call(path, body)
        assert status == 503 and str(store) in answer["detail"], (path, answer)
    assert program.call("session_heartbeat", {"session_id": session})[0] == 200
    for folder in folders:
        folder.unlink()
        folder.with_name(f"{folder.name}-aside").rename(folder)
    assert read_pass(program.result(send(program, model, 2, DATA)))[0]["loss:sum"] > 0
    assert program.call(f"sessions/{session}/finish", {})[0] == 200
    assert program.call("session_heartbeat", {"session_id": session})[0] == 410


def test_a_request_whose_turn_has_passed_is_refused_and_adds_nothing(program):
    norms = []
    for sends_late in (False, True):
        _, model = open_model(program)
        program.result(send(program, model, 1, DATA))
        if sends_late:
            late = send(program, model, 0, DATA)
            assert send(program, model, 0, DATA) == late
            refused = program.result(late)
            assert refused["category"] == "user" and "its turn has passed" in refused["error"], refused
        step = program.post("optim_step", model_id=model, seq_id=2, adam_params=STEP)["request_id"]
        norms.append(program.result(step)["metrics"]["grad_norm:mean"])
    assert norms[0] == norms[1] > 0


def test_a_silent_session_ends_while_another_keeps_the_server_busy(start):
    program = start("store", "--silence-seconds", "5")
    silent, model = open_model(program)
    _, busy = open_model(program)
    end, number, waiting = time.monotonic() + 60, 0, []
    while program.call("get_info", {"model_id": model})[0] == 200:
        assert time.monotonic() < end, "it is still there"
        for _ in range(20):
            number += 1
            waiting.append(send(program, busy, number, DATA))
        while len(waiting) > 20:
            program.result(waiting.pop(0))
    assert program.call("session_heartbeat", {"session_id": silent})[0] == 410
    assert program.call("get_info", {"model_id": busy})[0] == 200


def test_a_load_that_fails_saves_no_state(program, tmp_path):
    _, model = open_model(program)
    states = tmp_path / "store" / model.replace(":", "%3A") / "states"
    saved = program.result(program.post("save_weights", model_id=model, seq_id=1, path="one")["request_id"])["path"]
    for seq_id, path in [(2, saved.replace("one", "nothing")), (4, saved)]:
        loaded = program.result(program.post("load_weights", model_id=model, seq_id=seq_id, path=path)["request_id"])
        assert ("error" in loaded) == (path != saved), loaded
        program.result(send(program, model, seq_id + 1, DATA, forward_only=True))  # a state is saved before the next turn
        assert states.exists() == (path == saved)


def test_what_was_saved_is_listed_and_removed(program):
    _, model = open_model(program)
    saved = program.result(program.post("save_weights", model_id=model, seq_id=1, path="one")["request_id"])["path"]
    again = program.result(program.post("save_weights", model_id=model, seq_id=2, path="one")["request_id"])
    assert again["category"] == "user" and "is there already" in again["error"]

    def listed():
        status, answer = program.call(f"training_runs/{model}/checkpoints", method="GET")
        assert status == 200, answer
        return [(row["tinker_path"], row["checkpoint_type"]) for row in answer["checkpoints"]]

    assert listed() == [(saved, "training")]
    status, answer = program.call("save_weights_external", {"model_id": model, "seq_id": 3, "path": "out"})
    assert status == 404 and "lies in the store" in answer["detail"]
    assert program.call(f"training_runs/{model}/checkpoints/weights/one", method="DELETE")[0] == 200
    assert listed() == []
    assert program.call("weights_info", {"tinker_path": saved})[0] == 404


def test_a_training_run_is_described_while_it_trains_and_by_what_it_has_saved(program):
    session, model = open_model(program, user_metadata={"renderer_name": "qwen3", "step": 3})

    def described():
        status, answer = program.call(f"training_runs/{model}", method="GET")
        assert status == 200, answer
        return [answer[name] for name in ("training_run_id", "base_model", "is_lora", "lora_rank", "user_metadata")]

    expected = [model, NAME, True, 4, {"renderer_name": "qwen3", "step": "3"}]
    assert described() == expected
    saved = program.result(program.post("save_weights", model_id=model, seq_id=1, path="one")["request_id"])["path"]
    program.post(f"sessions/{session}/finish", reason={"type": "success"})
    assert described() == expected
    assert program.call(f"training_runs/{model}", method="GET", headers={"X-API-Key": "tml-other"})[0] == 404
    opened = program.post("create_session", tags=[], sdk_version="0.38.0", type="create_session")["session_id"]
    made = program.post("load_weights", session_id=opened, model_seq_id=0, path=saved, user_metadata={"of": saved})
    model = program.result(made["request_id"])["model_id"]
    assert described() == [model, NAME, True, 4, {"of": saved}]
    assert program.call("training_runs/session-9:train:9", method="GET")[0] == 404


def test_keys_of_a_file_are_the_only_ones(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("tml-one\n\ntml-two \n")
    program = start("store", "--api-key-file", str(keys))
    assert program.call("create_session", {})[0] == 401
    for key in ("tml-one", "tml-two"):
        assert program.call("create_session", {}, headers={"X-API-Key": key})[0] == 200
    assert program.call("healthz", method="GET")[0] == 401


@pytest.mark.parametrize("state_seconds", [0, 1000], ids=["from-a-state", "from-the-beginning"])
def test_a_killed_server_has_the_numbers_of_an_undisturbed_one(start, state_seconds):
    flags = ["--state-seconds", str(state_seconds)]
    undisturbed = start("undisturbed", *flags)
    _, made = open_model(undisturbed)
    expected = train(undisturbed, made, DATA + OTHER, 1, steps=5)
    undisturbed.stop()

    program = start("store", *flags)
    _, made = open_model(program)
    answers = train(program, made, DATA + OTHER, 1, steps=2)
    passed = send(program, made, 5, DATA + OTHER)
    updated = program.post("optim_step", model_id=made, seq_id=6, adam_params=STEP)["request_id"]
    program.stop(signal.SIGKILL)
    program = start("store", *flags)
    answers.append(program.result(passed))
    assert "metrics" in program.result(updated)
    assert send(program, made, 5, DATA + OTHER) == passed  # a client that has not heard of it sends it again
    answers += train(program, made, DATA + OTHER, 7, steps=2)
    assert answers == expected  # byte for byte


def test_models_of_a_session_that_is_over_are_not_restored(start, tmp_path):
    program = start("store", "--state-seconds", "0")
    session, over = open_model(program)
    _, other = open_model(program)
    sampler_of(program, over, 1, 0)
    train(program, over, DATA, 2, steps=1)
    program.stop(signal.SIGKILL)
    service = tmp_path / "store" / ".service"
    file = service / "sessions" / f"{session}.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "is_over": True}))
    program = start("store")
    assert program.call("get_info", {"model_id": over})[0] == 404
    assert [each.name for each in (service / "models").iterdir()] == [other.replace(":", "%3A") + ".json"]
    assert not list((service / "samplers").iterdir())
    assert not any((tmp_path / "store" / over.replace(":", "%3A")).iterdir())


def test_snapshots_names_and_owners_outlive_the_server(start, tmp_path):
    program = start("store", "--state-seconds", "0")
    session, made = open_model(program)
    early = sampler_of(program, made, 1, 0)
    train(program, made, DATA, 2)
    late = sampler_of(program, made, 8, 1)
    before = [read_samples(scores(program, each, 0)) for each in (early, late)]
    assert before[0] != before[1]
    saved = program.result(program.post("save_weights", model_id=made, seq_id=9, path="one")["request_id"])["path"]
    named = program.post("create_sampling_session", session_id=session, sampling_session_seq_id=2, model_path=saved)["sampling_session_id"]
    unheard = ask_for_scores(program, late, 1)
    program.stop(signal.SIGKILL)
    program = start("store", "--state-seconds", "0")
    assert program.call("retrieve_future", {"request_id": unheard})[0] == 410  # the client sends the request again
    assert [read_samples(scores(program, each, 2)) for each in (early, late, named)] == [*before, before[1]]
    assert program.call("get_info", {"model_id": made}, headers={"X-API-Key": "tml-other"})[0] == 404
    opened = program.post("create_session", tags=[], sdk_version="0.38.0", type="create_session")["session_id"]
    assert opened != session
    assert program.call("session_heartbeat", {"session_id": session})[0] == 200
    assert program.call(f"sessions/{session}/finish", {"reason": {"type": "success"}})[0] == 200
    assert program.call("session_heartbeat", {"session_id": session})[0] == 410
    assert program.call("get_info", {"model_id": made})[0] == 404
    program.stop()
    left = {each.name for each in (tmp_path / "store" / made.replace(":", "%3A")).iterdir()}
    assert left == {"weights"}  # what was saved by name

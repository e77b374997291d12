"""`save_weights_for_sampler` with a name: answered from a copy, written after that, and there whatever happens between."""

import json
import shutil
import signal
import time

import pytest
from test_tinker_messages import DATA, model, open_model, program, read_samples, scores, start, train  # noqa: F401


def samplers_folder(store, model):  # noqa: F811
    return store / model.replace(":", "%3A") / "sampler_weights"


def save(program, model, seq_id, name="one", **more):  # noqa: F811
    made = program.post("save_weights_for_sampler", model_id=model, seq_id=seq_id, path=name, **more)
    return program.result(made["request_id"])


def sampler_at(program, session, number, path):  # noqa: F811
    return program.post("create_sampling_session", session_id=session, sampling_session_seq_id=number, model_path=path)["sampling_session_id"]


def log_probs(program, sampler, seq_id):  # noqa: F811
    return read_samples(scores(program, sampler, seq_id))["prompt_logprobs"]


@pytest.fixture
def held_up(tmp_path):
    """Called with a model and a name: nothing can be written there until what it returns is called."""

    def hold_up(model, name="one"):  # noqa: F811
        folder = samplers_folder(tmp_path / "store", model)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to("nothing")  # a directory does not take the place of a link
        return (folder / name).unlink

    return hold_up


def test_a_save_is_a_directory_of_peft_without_the_optimizer(program, tmp_path):  # noqa: F811
    session, trained = open_model(program)
    train(program, trained, DATA, 1, steps=2)
    path = save(program, trained, 5)["path"]
    assert path == f"tinker://{trained}/sampler_weights/one"
    info = program.post("weights_info", tinker_path=path)  # when it is written
    assert info["is_lora"] and info["lora_rank"] == 4
    folder = samplers_folder(tmp_path / "store", trained) / "one"
    assert {"adapter_config.json", "adapter_model.safetensors", "run.json", "COMMITTED"} <= {each.name for each in folder.iterdir()}
    assert not (folder / "optimizer").exists()
    assert json.loads((folder / "run.json").read_text())["run"]["updates"] == 2
    again = save(program, trained, 6)
    assert again["category"] == "user" and "is there already" in again["error"]
    train(program, trained, DATA, 7, steps=1)
    before = log_probs(program, sampler_at(program, session, 0, path), 0)
    assert save(program, trained, 9, overwrite=True)["path"] == path
    assert log_probs(program, sampler_at(program, session, 1, path), 0) != before
    for seq_id, restores in [(10, False), (11, True)]:
        body = {"model_id": trained, "seq_id": seq_id, "path": path, "optimizer": restores}
        loaded = program.result(program.post("load_weights", **body)["request_id"])
        assert ("error" in loaded) == restores, loaded
        assert not restores or "without the optimizer's state" in loaded["error"]


def test_what_is_not_written_yet_is_sampled_and_never_listed(program, held_up):  # noqa: F811
    session, trained = open_model(program)
    train(program, trained, DATA, 1, steps=2)
    let_go = held_up(trained)
    path = save(program, trained, 5)["path"]
    sampler = sampler_at(program, session, 0, path)
    before = log_probs(program, sampler, 0)
    train(program, trained, DATA, 6, steps=1)
    assert log_probs(program, sampler, 1) == before  # the copy is of its moment
    status, listed = program.call(f"training_runs/{trained}/checkpoints", method="GET")
    assert status == 200 and listed["checkpoints"] == []
    status, answer = program.call("weights_info", {"tinker_path": path})
    assert status == 404 and "cannot be written" in answer["detail"], answer
    let_go()
    assert program.post("weights_info", tinker_path=path)["is_lora"]
    assert log_probs(program, sampler_at(program, session, 1, path), 0) == before
    assert any("is not written yet" in line for line in program.lines)


def delete(program, model, name="one", kind="sampler_weights"):  # noqa: F811
    return program.call(f"training_runs/{model}/checkpoints/{kind}/{name}", method="DELETE")[0]


def test_what_is_not_written_yet_can_be_deleted_and_is_never_written(program, held_up, tmp_path):  # noqa: F811
    session, trained = open_model(program)
    train(program, trained, DATA, 1, steps=1)
    let_go = held_up(trained)
    path = save(program, trained, 3)["path"]
    assert program.call("weights_info", {"tinker_path": path})[0] == 404  # it cannot be written
    assert delete(program, trained) == 200
    assert delete(program, trained) == 404
    let_go()
    assert program.call("weights_info", {"tinker_path": path})[0] == 404
    assert program.call(f"sessions/{session}/finish", {"reason": {"type": "success"}})[0] == 200  # it waits for nothing
    assert not list(samplers_folder(tmp_path / "store", trained).iterdir())


@pytest.mark.parametrize("state_seconds", [0, 1000], ids=["with-states", "without"])
def test_a_killed_server_writes_what_it_had_answered(start, tmp_path, held_up, state_seconds):  # noqa: F811
    flags = ["--state-seconds", str(state_seconds)]
    program = start("store", *flags)  # noqa: F811
    session, trained = open_model(program)
    train(program, trained, DATA, 1, steps=2)
    let_go = held_up(trained)
    path = save(program, trained, 5)["path"]
    sampler = sampler_at(program, session, 0, path)
    before = log_probs(program, sampler, 0)
    train(program, trained, DATA, 6, steps=2)  # behind each a state is due, which would forget the save
    program.stop(signal.SIGKILL)
    let_go()
    assert not (samplers_folder(tmp_path / "store", trained) / "one").exists()
    program = start("store", *flags)
    assert log_probs(program, sampler, 1) == before
    assert program.post("weights_info", tinker_path=path)["lora_rank"] == 4
    assert log_probs(program, sampler_at(program, session, 1, path), 0) == before


def test_a_session_ends_when_what_it_saved_is_written(start, held_up):  # noqa: F811
    program = start("store", "--silence-seconds", "2")  # noqa: F811
    session, trained = open_model(program)
    let_go = held_up(trained)
    path = save(program, trained, 1)["path"]
    status, answer = program.call(f"sessions/{session}/finish", {"reason": {"type": "success"}})
    assert status == 503 and "cannot be written" in answer["detail"], answer
    time.sleep(4)  # nor does it end by its silence
    assert program.call("get_info", {"model_id": trained})[0] == 200
    let_go()
    assert program.call(f"sessions/{session}/finish", {"reason": {"type": "success"}})[0] == 200
    program.stop(signal.SIGKILL)
    program = start("store")
    opened = program.post("create_session", tags=[], sdk_version="0.38.0", type="create_session")["session_id"]
    made = program.result(program.post("load_weights", session_id=opened, model_seq_id=0, path=path)["request_id"])
    assert made["path"] == path


def test_a_server_that_is_stopped_writes_all(start, tmp_path):  # noqa: F811
    program = start("store", "--state-seconds", "1000")  # noqa: F811
    _, trained = open_model(program)
    for seq_id in range(1, 9):
        assert "path" in save(program, trained, seq_id, f"number-{seq_id}")
    program.stop()
    assert len(list(samplers_folder(tmp_path / "store", trained).iterdir())) == 8


def test_what_was_overwritten_is_not_sampled_while_a_server_that_was_killed_does_it_again(start, tmp_path):
    flags = ["--state-seconds", "1000"]
    program = start("store", *flags)  # noqa: F811
    session, trained = open_model(program)
    path = save(program, trained, 1)["path"]
    assert program.post("weights_info", tinker_path=path)["is_lora"]  # it is written
    folder = samplers_folder(tmp_path / "store", trained) / "one"
    shutil.copytree(folder, tmp_path / "before")
    train(program, trained, DATA, 2, steps=60)  # takes its time to be done again
    assert save(program, trained, 122, overwrite=True)["path"] == path
    sampler = sampler_at(program, session, 0, path)
    expected = log_probs(program, sampler, 0)
    assert program.post("weights_info", tinker_path=path)["is_lora"]
    program.stop(signal.SIGKILL)
    shutil.rmtree(folder)  # as a kill before it was written would have left it
    shutil.move(tmp_path / "before", folder)
    program = start("store", *flags)
    for route, body in {"weights_info": {"tinker_path": path}, "load_weights": {"session_id": session, "model_seq_id": 1, "path": path}}.items():
        status, answer = program.call(route, body)
        assert status == 503 and "is being restored" in answer["detail"], answer
    assert log_probs(program, sampler, 1) == expected
    assert log_probs(program, sampler_at(program, session, 1, path), 0) == expected


def status_when_restored(program, path):  # noqa: F811
    while (status := program.call("weights_info", {"tinker_path": path})[0]) == 503:
        time.sleep(0.05)
    return status


def names_of(program, model):  # noqa: F811
    status, answer = program.call(f"training_runs/{model}/checkpoints", method="GET")
    assert status == 200, answer
    return {row["checkpoint_id"] for row in answer["checkpoints"]}


@pytest.mark.parametrize("state_seconds", [0, 1000], ids=["with-states", "without"])
def test_what_was_deleted_is_not_there_after_a_kill(start, tmp_path, state_seconds):
    flags = ["--state-seconds", str(state_seconds)]
    program = start("store", *flags)  # noqa: F811
    _, trained = open_model(program)
    train(program, trained, DATA, 1, steps=1)
    path = save(program, trained, 3)["path"]
    program.result(program.post("save_weights", model_id=trained, seq_id=4, path="state")["request_id"])
    assert "path" in save(program, trained, 5, "stays")
    assert "path" in save(program, trained, 6, "again")
    assert [delete(program, trained), delete(program, trained, "state", "weights"), delete(program, trained, "again")] == [200, 200, 200]
    assert "path" in save(program, trained, 7, "again")
    train(program, trained, DATA, 8, steps=1)
    assert delete(program, trained, "stays") == 200
    assert "path" in save(program, trained, 10, "stays")
    expected = {"sampler_weights/stays", "sampler_weights/again"}
    assert names_of(program, trained) == expected
    for _ in range(2):
        program.stop(signal.SIGKILL)
        program = start("store", *flags)
        assert status_when_restored(program, path) == 404
        assert names_of(program, trained) == expected
    assert "path" in save(program, trained, 11)  # the name is free
    assert program.post("weights_info", tinker_path=path)["is_lora"]


@pytest.mark.parametrize("state_seconds", [0, 1000], ids=["with-states", "without"])
def test_what_was_deleted_before_it_was_written_is_not_written_after_a_kill(start, tmp_path, held_up, state_seconds):
    flags = ["--state-seconds", str(state_seconds)]
    program = start("store", *flags)  # noqa: F811
    _, trained = open_model(program)
    let_go = held_up(trained)
    path = save(program, trained, 1)["path"]
    assert delete(program, trained) == 200
    program.stop(signal.SIGKILL)
    let_go()
    program = start("store", *flags)
    assert status_when_restored(program, path) == 404
    assert not list(samplers_folder(tmp_path / "store", trained).iterdir())


def test_a_deletion_that_cannot_be_written_down_is_refused_and_deletes_nothing(program, tmp_path):  # noqa: F811
    _, trained = open_model(program)
    path = save(program, trained, 1)["path"]
    deleted = samplers_folder(tmp_path / "store", trained).with_name("deleted")
    deleted.write_text("no folder")
    status, answer = program.call(f"training_runs/{trained}/checkpoints/sampler_weights/one", method="DELETE")
    assert status == 503 and "deleted" in answer["detail"], answer
    assert program.post("weights_info", tinker_path=path)["is_lora"]
    deleted.unlink()
    assert delete(program, trained) == 200
    assert program.call("weights_info", {"tinker_path": path})[0] == 404


def test_an_adapter_of_another_form_is_told_in_the_clients_words(program):  # noqa: F811
    _, small = open_model(program, train_mlp=False)
    saved = program.result(program.post("save_weights", model_id=small, seq_id=1, path="one")["request_id"])["path"]
    _, other = open_model(program)
    for seq_id, restores in [(1, False), (2, True)]:
        asked = program.post("load_weights", model_id=other, seq_id=seq_id, path=saved, optimizer=restores)
        answer = program.result(asked["request_id"])
        assert "make a model from it" in answer["error"] and "--" not in answer["error"], answer


def test_flags_that_no_request_trains_with_are_refused_at_the_start(start):
    with pytest.raises(AssertionError, match="--true-on-policy: requests do not train with it"):
        start("store", "--true-on-policy")

"""What SGLang's launch scripts and clients do to a server, on a running one."""

import base64
import struct
import time
import urllib.request
from pathlib import Path

import pytest
from naming_model import LABELS, head_of, make_naming_model, safetensors
from server_process import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sglang")
    model = make_naming_model(folder / "model")
    profiles = folder / "profiles"
    profiles.mkdir()
    flags = ["--mem-fraction-static", "0.85", "--attention-backend", "fa3", "--chunked-prefill-size", "-1", "--cuda-graph-bs", "1", "2", "4",
             "--disable-radix-cache", "--max-total-tokens", "2048", "--trust-remote-code", "--skip-server-warmup", "--enable-metrics",
             "--dp-size", "1", "--random-seed", "7", "--stream-interval", "2", "--weight-version", "v0", "--profile-dir", str(profiles)]
    with Server(str(model), "--skip-tokenizer-init", *flags) as running:
        yield running


def profiles_of(server) -> Path:
    return Path(server.get("/model_info")[1]["model_path"]).parent / "profiles"


def greedy(server, **fields):
    status, reply = server.post("/generate", {"input_ids": [40, 41], "sampling_params": {"temperature": 0, "max_new_tokens": 4}, **fields})
    assert status == 200, reply
    return reply


def test_a_launch_script_of_sglang_begins_and_its_flags_act(server):
    info = server.get("/server_info")[1]
    assert info["max_total_num_tokens"] == 2048 and info["random_seed"] == 7 and info["tp_size"] == 1
    frames = list(server.frames("/generate", {"input_ids": [40], "stream": True, "sampling_params": {"temperature": 0, "max_new_tokens": 4}}))
    lengths = [len(frame["output_ids"]) for frame in frames]  # a busy client gets two frames as one
    assert lengths in ([2, 4], [4]), "--stream-interval 2"
    status, metrics = server.get("/metrics")
    assert status == 200 and "sglang:time_to_first_token_seconds_bucket{" in metrics


def test_tokens_are_scored_by_id(server):
    meta = greedy(server, return_logprob=True, logprob_start_len=0, token_ids_logprob=[3, 0])["meta_info"]
    assert [token for _, token, _ in meta["output_token_ids_logprobs"][0]] == [3, 0]
    (three, _, _), (zero, _, _) = meta["output_token_ids_logprobs"][0]
    assert zero > -0.1 and three < -30
    assert meta["input_token_ids_logprobs"][0] is None and len(meta["input_token_ids_logprobs"]) == 2


def test_weights_come_as_a_file_in_the_body(server):
    data = safetensors({"lm_head.weight": head_of(9)})
    call = urllib.request.Request(f"{server.url}/update_weights_from_tensor?weight_version=v9", data, {"Content-Type": "application/octet-stream"})
    with urllib.request.urlopen(call, timeout=60) as reply:
        assert b'"success":true' in reply.read()
    reply = greedy(server)
    assert reply["output_ids"] == [9 % LABELS] * 4 and reply["meta_info"]["weight_version"] == "v9"
    status, rows = server.post("/get_weights_by_name", {"name": "lm_head.weight", "truncate_size": 10})
    assert status == 200 and len(rows) == 10 and rows[9][0] > 1 and rows[8][0] == 0
    status, reply = server.post("/get_weights_by_name", {"name": "lm_head"})
    assert status == 400 and "lm_head" in reply["error"]["message"]


def test_what_cannot_be_taken_changes_nothing(server):
    before = greedy(server)["meta_info"]["weight_version"]
    for data, reason in ((b"\x80\x04\x95", "pickle"), (struct.pack("<Q", 10**9), "safetensors")):
        status, reply = server.post("/update_weights_from_tensor", {"serialized_named_tensors": [base64.b64encode(data).decode()], "weight_version": "x"})
        assert status == 400 and reason in reply["error"]["message"]
    status, reply = server.post("/init_weights_update_group", {"master_address": "127.0.0.1", "master_port": 1, "rank_offset": 1, "world_size": 2, "backend": "nccl"})
    assert status == 400 and "gloo" in reply["error"]["message"]
    assert greedy(server)["meta_info"]["weight_version"] == before


def test_a_profile_ends_by_itself(server):
    status, text = server.post("/start_profile", {"output_dir": "here", "num_steps": 2, "activities": ["CPU"]})
    assert status == 200, text
    greedy(server)
    for _ in range(200):
        files = list(profiles_of(server).glob("here/*.json"))
        if files and server.post("/stop_profile")[0] == 400:
            break
        time.sleep(0.05)
    assert [file.stat().st_size > 0 for file in files] == [True]


def test_a_profile_that_is_under_way_when_the_server_ends_is_written(tmp_path):
    model = make_naming_model(tmp_path / "model")
    (tmp_path / "profiles").mkdir()
    with Server(str(model), "--skip-tokenizer-init", "--profile-dir", str(tmp_path / "profiles")) as ending:
        assert ending.post("/start_profile", {"num_steps": 1 << 30})[0] == 200
        greedy(ending)
        assert ending.stop() == 0
    assert [file.stat().st_size > 0 for file in (tmp_path / "profiles").glob("*.json")] == [True]

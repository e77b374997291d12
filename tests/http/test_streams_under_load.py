"""`slime bench server-streams` against a small server: what it counts, and that those who were admitted go on beside those refused."""

import json
import subprocess

import pytest
from server_process import PROGRAM, Server
from test_serve import make_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(make_model(tmp_path_factory.mktemp("streams")))


def measured(server, *flags):
    done = subprocess.run([PROGRAM, "bench", "server-streams", "--url", server.url, "--seconds", "2", "--warm-up", "1", "--tokens", "64",
                           "--process", str(server.process.pid), *flags], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_every_stream_is_counted_to_its_end(model):
    with Server(model, "--max-running-requests", "16") as server:
        line = measured(server, "--streams", "16")
    assert list(line["statuses"]) == ["200"] and line["connections_lost"] == 0
    assert line["answers"] > 0 and line["tokens_per_second"] > 0  # of tokens with text: most of this model's are bytes of no character
    assert 0 < line["gap_ms"]["p50"] <= line["gap_ms"]["p99"] <= line["gap_ms"]["max"]
    assert line["cores_used"] > 0 and line["memory_mib_most"] > 10


def test_beyond_its_limits_a_server_refuses_and_the_admitted_end(model):
    with Server(model, "--max-running-requests", "4", "--max-queued-requests", "2") as server:
        line = measured(server, "--streams", "64")
    assert set(line["statuses"]) == {"200", "429"} and line["connections_lost"] == 0
    assert line["answers"] > 0


def test_a_url_with_a_path_and_a_server_that_is_not_there_are_refused():
    for url, words in [("http://127.0.0.1:1/v1", "without a path"), ("http://127.0.0.1:1", "no connection to 127.0.0.1:1")]:
        done = subprocess.run([PROGRAM, "bench", "server-streams", "--url", url], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and words in done.stderr

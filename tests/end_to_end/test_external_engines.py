"""Servers that somebody else started (`--rollout-external-engine-addrs`): what they draw is what the run's own engine draws, and a
server of another kind is trained with too."""

import json
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import ROOT, run_slime, train_command, weights
from test_engine_workers import audit, command_for, responses, steps_done

sys.path.insert(0, str(ROOT / "tests/http"))
from fake_sglang import FakeSGLang  # noqa: E402
from server_process import Program  # noqa: E402

STEPS = 80  # of command_for


def serve(work, folder, port=0):
    folder.mkdir(exist_ok=True)
    return Program("serve", "--model", str(work / "model"), "--port", str(port), "--device", "cpu", "--dtype", "float32",
                   "--weights-root", str(folder), "--incremental-streaming-output")


def external(servers, folder):
    addresses = [server.url.removeprefix("http://") for server in servers]
    return ["--rollout-external-engine-addrs", *addresses, "--update-weight-disk-dir", str(folder)]


@pytest.fixture(scope="module")
def own_engine(work):
    run_dir = work / "own_engine"
    done = run_slime(command_for(work, run_dir))
    assert done.returncode == 0, done.stdout + done.stderr
    return run_dir


def test_two_servers_draw_and_train_what_the_runs_own_engine_does(work, own_engine):
    run_dir, folder = work / "external", work / "external_weights"
    servers = [serve(work, folder) for _ in range(2)]
    try:
        done = run_slime(command_for(work, run_dir, extra=external(servers, folder)))
        assert done.returncode == 0, done.stdout + done.stderr
        assert {server.get("/get_weight_version")[1]["weight_version"] for server in servers} == {str(STEPS)}
        assert all(server.get("/v1/loads")[1]["loads"][0]["steps_done"] > STEPS for server in servers)
    finally:
        for server in servers:
            server.stop()
    assert responses(run_dir) == responses(own_engine)
    assert weights(run_dir) == weights(own_engine)
    audit(run_dir, STEPS)
    assert list(folder.iterdir()) == []  # each version is removed when it has been read


def test_a_server_that_is_killed_and_started_again_changes_nothing(work, own_engine):
    run_dir, folder = work / "external_killed", work / "killed_weights"
    servers = [serve(work, folder) for _ in range(2)]
    process = subprocess.Popen(command_for(work, run_dir, extra=external(servers, folder)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def disturb():
        for step in (5, 30):
            while process.poll() is None and steps_done(run_dir) < step:
                time.sleep(0.005)
            port = servers[0].url.rsplit(":", 1)[1]
            servers[0].stop(signal.SIGKILL)
            servers[0] = serve(work, folder, port)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        output, _ = process.communicate(timeout=280)
    finally:
        process.kill()
        thread.join()
        for server in servers:
            server.stop()
    assert process.returncode == 0, output
    assert responses(run_dir) == responses(own_engine)
    assert weights(run_dir) == weights(own_engine)
    audit(run_dir, STEPS)


def test_a_server_of_sglangs_protocol_is_trained_with(work):
    run_dir, folder = work / "external_sglang", work / "sglang_weights"
    with FakeSGLang(name="one") as one, FakeSGLang(name="two") as two:
        done = run_slime(train_command(work, run_dir, rollouts=4, extra=external([one, two], folder)))
        assert done.returncode == 0, done.stdout + done.stderr
        samples = [json.loads(line) for path in sorted((run_dir / "rollouts").glob("step_*.jsonl")) for line in path.open()]
        assert len(samples) == 4 * 16
        for server in (one, two):
            assert server.weight_version == "4"
            assert server.model_path == str(folder / "weight_v000004")
            orders = [path for _, path, _, _ in server.requests]
            assert orders.count("/update_weights_from_disk") == 5
        assert one.count("/generate") + two.count("/generate") == len(samples)
        body = next(body for _, path, _, body in one.requests if path == "/generate")
        assert body["return_logprob"] and body["stream"] and body["sampling_params"]["max_new_tokens"] == 6


def test_weights_that_somebody_else_brings_end_the_run(work):
    run_dir, folder = work / "external_meddled", work / "meddled_weights"
    with FakeSGLang() as fake:
        fake.update_weights = lambda http, body: fake.send_json(http, {"success": True, "message": "not done"})
        done = run_slime(train_command(work, run_dir, rollouts=2, extra=external([fake], folder)))
    assert done.returncode != 0
    assert 'the server has weights "default"' in done.stdout + done.stderr


@pytest.mark.parametrize("flags, says", [
    (["--rollout-external-engine-addrs", "127.0.0.1:1"], "--update-weight-disk-dir"),
    (["--rollout-external-engine-addrs", "nobody", "--update-weight-disk-dir", "w"], "HOST:PORT"),
    (["--rollout-external-engine-addrs", "127.0.0.1:1", "--update-weight-disk-dir", "w", "--colocate"], "--colocate"),
    (["--rollout-external-engine-addrs", "127.0.0.1:1", "--update-weight-disk-dir", "w", "--update-weight-mode", "delta"], "delta"),
    (["--rollout-external-engine-addrs", "127.0.0.1:1", "--update-weight-disk-dir", "w"], "cannot connect"),
])  # fmt: skip
def test_what_cannot_work_is_said(work, flags, says):
    done = run_slime(train_command(work, work / "external_refused", rollouts=1, extra=flags))
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stdout + done.stderr

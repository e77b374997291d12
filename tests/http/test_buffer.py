"""The running `slime buffer`: what generators and trainers meet, and what is left when it is killed."""

import http.client
import json
import random
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest
from buffer_process import Buffer, item
from server_process import PROGRAM

from slime.rollout.buffer_client import BufferClient, BufferRefusal


@pytest.fixture
def buffer(tmp_path):
    with Buffer(tmp_path / "buffer", "--group-size", "2") as running:
        yield running


def post(url, body, headers=None):
    """Status and text."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    call = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})}, method="POST")
    try:
        with urllib.request.urlopen(call, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def test_a_whole_group_comes_once_with_what_was_written(buffer):
    for uid in ("a", "b", "c"):
        written = buffer.client.write(item(7, uid, messages=[{"role": "assistant", "content": f"\u00e4\n{uid}"}], reward=0.5))
        assert written["success"] and written["data"]["data"] == [{"instance_id": 7}]
    status, text = post(buffer.url + "/get_rollout_data", {})
    answer = json.loads(text)
    assert status == 200 and answer["success"] and answer["message"] == "Successfully read 2 items"
    assert [each["messages"][0]["content"] for each in answer["data"]["data"]] == ["\u00e4\na", "\u00e4\nb"]
    meta = answer["data"]["meta_info"]
    assert meta == {"total_samples": 3, "num_groups": 1, "avg_group_size": 3.0, "avg_reward": 0.5, "finished_groups": [7]}
    status, text = post(buffer.url + "/get_rollout_data", b"")
    assert status == 200
    assert json.loads(text) == {"success": False, "message": "No data available to read", "data": {"data": [], "meta_info": {}}}
    assert buffer.client.status()["filling_groups"] == 1


def test_a_reader_takes_as_many_groups_as_it_wants_the_oldest_first(buffer):
    for instance in range(5):
        for uid in ("a", "b"):
            buffer.client.write(item(instance, uid))
    assert [each["instance_id"] for each in buffer.client.take(2)[0]] == [0, 0, 1, 1]
    assert [each["instance_id"] for each in buffer.client.take(100)[0]] == [2, 2, 3, 3, 4, 4]


def test_a_repeated_request_gets_the_same_groups(buffer):
    for uid in ("a", "b"):
        buffer.client.write(item(1, uid))
    first = buffer.client.take(1, "step 4")[0]
    assert len(first) == 2 and buffer.client.take(1, "step 4")[0] == first
    assert buffer.client.take(1, "step 5")[0] == []


def test_a_repeated_write_counts_once(buffer):
    buffer.client.write(item(1, "a"))
    assert "already" in buffer.client.write(item(1, "a"))["message"]
    assert buffer.client.status()["items"] == 1


BAD_BODIES = {
    "empty": b"",
    "no-json": b"{",
    "list": b"[1]",
    "no-instance": b'{"uid":"a"}',
    "instance-of-a-wrong-kind": b'{"instance_id":[1]}',
    "key-twice": b'{"instance_id":1,"instance_id":2}',
    "bad-utf8": b'{"instance_id":"\xff"}',
    "deep": b'{"instance_id":1,"a":' + b"[" * 1000 + b"]" * 1000 + b"}",
    "trailing": b'{"instance_id":1}{}',
    "nan": b'{"instance_id":1,"reward":NaN}',
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_bad_bodies_are_refused_and_nothing_is_kept(buffer, body):
    status, text = post(buffer.url + "/buffer/write", body)
    assert status == 400 and json.loads(text)["error"]["message"]
    assert buffer.client.status()["items"] == 0


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"max_groups":0}', b'{"max_groups":"2"}', b'{"request_id":5}'])
def test_bad_reads_take_nothing(buffer, body):
    for uid in ("a", "b"):
        buffer.client.write(item(1, uid))
    assert post(buffer.url + "/get_rollout_data", body)[0] == 400
    assert buffer.client.status()["whole_groups"] == 1


def test_an_item_beyond_the_limit_is_refused_before_it_is_read(tmp_path):
    with Buffer(tmp_path, "--body-limit-mib", "1") as buffer:
        connection = http.client.HTTPConnection("127.0.0.1", buffer.port, timeout=60)
        connection.putrequest("POST", "/buffer/write")
        connection.putheader("Content-Length", str(2 << 20))
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()
        assert buffer.client.write(item(1, "a", text="x" * (900 << 10)))["success"]


def test_a_full_buffer_says_so_and_goes_on_once_it_is_read(tmp_path):
    with Buffer(tmp_path, "--group-size", "1", "--max-items", "2") as buffer:
        for uid in ("a", "b"):
            buffer.client.write(item(1, uid))
        with pytest.raises(BufferRefusal, match="no further group may begin") as refusal:
            buffer.client.write(item(2, "a"), patience=0)
        assert refusal.value.status == 503
        reader = threading.Timer(1.0, buffer.client.take, [1])
        reader.start()
        buffer.client.write(item(2, "a"), patience=60)
        reader.join()


def test_only_loopback_without_a_key_and_the_key_is_asked_for(tmp_path):
    command = [str(PROGRAM), "buffer", "--folder", str(tmp_path / "open"), "--port", "0", "--host", "0.0.0.0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2 and "--api-key-file" in refused.stderr
    (tmp_path / "key").write_text("sesame\n")
    with Buffer(tmp_path / "closed", "--api-key-file", str(tmp_path / "key")) as buffer:
        with pytest.raises(BufferRefusal) as refusal:
            buffer.client.write(item(1, "a"))
        assert refusal.value.status == 401
        assert BufferClient(buffer.url, key="sesame").write(item(1, "a"))["success"]


def test_a_page_of_another_host_may_not_write(buffer):
    assert post(buffer.url + "/buffer/write", item(1, "a"), {"Origin": "http://evil.example"})[0] == 403


def test_a_folder_has_one_buffer(buffer, tmp_path):
    command = [str(PROGRAM), "buffer", "--folder", str(tmp_path / "buffer"), "--port", "0"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert second.returncode == 2 and "another slime buffer uses it" in second.stderr


def test_a_stop_ends_it_with_0_and_a_restart_goes_on(tmp_path):
    with Buffer(tmp_path, "--group-size", "2") as buffer:
        buffer.client.write(item(1, "a"))
        assert buffer.stop() == 0
    with Buffer(tmp_path, "--group-size", "2") as buffer:
        buffer.client.write(item(1, "b"))
        assert len(buffer.client.take(1)[0]) == 2


class Writer(threading.Thread):
    """Writes items until it is told to stop; `acknowledged` are the uids that the buffer has to have."""

    def __init__(self, client, number):
        super().__init__()
        self.client, self.number = client, number
        self.acknowledged = []
        self.stopping = threading.Event()

    def run(self):
        count = 0
        while not self.stopping.is_set():
            uid = f"{self.number}-{count}"
            self.client.write(item(count, uid, text="x" * 200), patience=60)
            self.acknowledged.append(uid)
            count += 1


def test_kills_lose_no_acknowledged_write_and_give_no_group_twice(tmp_path):
    rng = random.Random(20260823)
    buffer = Buffer(tmp_path, "--group-size", "4")
    port = buffer.port
    writers = [Writer(buffer.client, number) for number in range(4)]
    for writer in writers:
        writer.start()
    given, reads, kills = {}, 0, 0
    try:
        # On a busy machine few writes come between two kills.
        while kills < 8 or (kills < 80 and sum(len(writer.acknowledged) for writer in writers) <= 100):
            instant = time.monotonic() + rng.uniform(0.05, 0.4)
            while time.monotonic() < instant:
                name = f"read {reads}"
                given[name] = buffer.client.take(3, name)[0]
                reads += bool(given[name])
                time.sleep(0.01)
            buffer.stop(signal.SIGKILL)
            kills += 1
            buffer = Buffer(tmp_path, "--group-size", "4", port=port)
    finally:
        for writer in writers:
            writer.stopping.set()
        for writer in writers:
            writer.join(timeout=90)
    with buffer:
        while True:
            name = f"read {reads}"
            given[name] = buffer.client.take(100, name)[0]
            if not given[name]:
                break
            reads += 1
        left = buffer.client.status()
    uids = [each["uid"] for items in given.values() for each in items]
    acknowledged = {uid for writer in writers for uid in writer.acknowledged}
    assert len(uids) == len(set(uids)), "an item was given twice"
    assert len(acknowledged) > 100 and len(acknowledged - set(uids)) <= left["items"]
    assert left["groups_given"] * 4 == len(uids)
    for items in given.values():
        for begin in range(0, len(items), 4):
            assert len({each["instance_id"] for each in items[begin : begin + 4]}) == 1


def test_a_lost_answer_is_asked_for_again_after_a_kill(tmp_path):
    buffer = Buffer(tmp_path, "--group-size", "1")
    buffer.client.write(item(1, "a"))
    lost = buffer.client.take(1, "step 0")[0]
    buffer.stop(signal.SIGKILL)
    with Buffer(tmp_path, "--group-size", "1") as again:
        assert again.client.take(1, "step 1")[0] == []
        assert again.client.take(1, "step 0")[0] == lost

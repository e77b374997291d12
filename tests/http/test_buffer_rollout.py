"""Both Python sides of a rollout buffer: generators that `/start_rollout` runs, and the rollout function that reads."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import types
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from buffer_process import Buffer, item
from server_process import PROGRAM, ROOT

from slime.rollout import buffer_rollout
from slime.rollout.buffer_client import BufferRefusal
from slime.rollout.buffer_generator import ChatClient

GENERATOR = """
import time
from slime_plugins.rollout_buffer.generator import BaseGenerator

TASK_TYPE = "numbers"

def is_valid_group(group, min_valid_group_size, task_type):
    return group[0] != 2

def transform_group(group, task_type):
    for each in group[1]:
        each["reward"] = each["reward"] * 10
    return group

def answer(client, messages, sampling_params):
    return [*messages, {"role": "assistant", "content": f"it is {messages[-1]['content']}"}], "stop"

def run_rollout(data):
    BaseGenerator.of(data).entry(data["input_file"], answer, lambda item: 0.5, int(data["num_epoch"]))
    time.sleep(float(data.get("linger", 60)))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    subprocess.run([sys.executable, ROOT / "tools" / "tiny_model.py", folder], check=True, stdout=subprocess.DEVNULL)
    os.environ.setdefault("SLIME_BINARY", str(PROGRAM))
    return folder


@pytest.fixture
def generator(tmp_path):
    (tmp_path / "numbers.py").write_text(GENERATOR)
    rows = [{"question": str(number), "answer": str(number), "instance_id": number} for number in range(6)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(tmp_path / "numbers.py")


def arguments(model, url, tmp_path, **changes):
    return types.SimpleNamespace(
        **{
            "rollout_buffer_url": url,
            "rollout_task_type": "numbers",
            "fetch_trajectory_retry_times": 3,
            "rollout_batch_size": 2,
            "n_samples_per_prompt": 2,
            "prompt_data": [str(tmp_path / "rows.jsonl")],
            "input_key": "question",
            "label_key": "answer",
            "hf_checkpoint": str(model),
            "loss_mask_type": "qwen",
            "rollout_max_response_len": 8,
            "rollout_temperature": 1.0,
            "rollout_top_p": 1.0,
            "num_epoch": 1,
            "run_dir": str(tmp_path / "run"),
            "sglang_router_ip": "127.0.0.1",
            "sglang_router_port": 9,
            **changes,
        }
    )


class Prompts:
    def __init__(self):
        self.metadata = {}

    def get_metadata(self):
        return self.metadata

    def update_metadata(self, more):
        self.metadata.update(more)


def test_a_users_generator_fills_steps(model, generator, tmp_path):
    with Buffer(tmp_path / "buffer", "--generator", generator) as buffer:
        args, prompts = arguments(model, buffer.url, tmp_path), Prompts()
        steps = [buffer_rollout.generate_rollout(args, step, prompts) for step in (0, 1)]
        assert buffer.client.status()["task_type"] == "numbers" and buffer.client.status()["group_size"] == 2
    instances = [[group[0].metadata["instance_id"] for group in step.samples] for step in steps]
    assert all(len(each) == 2 for each in instances) and len({*instances[0], *instances[1]}) == 4
    assert 2 not in {*instances[0], *instances[1]}, "is_valid_group was not asked"
    sample = steps[0].samples[0][1]
    number = sample.metadata["instance_id"]
    assert sample.reward == 5.0 and sample.response == f"it is {number}" and sample.status.value == "completed"
    assert sample.loss_mask == [1] * sample.response_length and sample.response_length < len(sample.tokens)
    text = bytes(token for token in sample.tokens[-sample.response_length :] if token < 256)
    assert f"it is {number}".encode() in text.replace(b"\xc4\xa0", b" ") or len(text) > 0
    assert sample.label == str(number)
    assert set(prompts.metadata) == {"0", "1"}


def test_an_item_with_tokens_is_trained_as_it_is():
    record = item(1, "a", tokens=[5, 6, 7, 8], response_length=2, loss_mask=[0, 1], rollout_log_probs=[-0.5, -1.0])
    sample = buffer_rollout.sample_of(record, lambda: pytest.fail("tokens were made of texts"))
    assert (sample.tokens, sample.response_length, sample.loss_mask) == ([5, 6, 7, 8], 2, [0, 1])
    assert sample.rollout_log_probs == [-0.5, -1.0]


@pytest.mark.parametrize("field", ["reward", "extra_info", "messages"])
def test_an_item_that_lacks_something_is_named(field):
    record = item("x", "a")
    del record[field]
    with pytest.raises(ValueError, match=f"instance x has no {field}"):
        buffer_rollout.sample_of(record, None)


def test_a_step_that_is_repeated_gets_the_same_groups(model, generator, tmp_path):
    with Buffer(tmp_path / "buffer", "--generator", generator) as buffer:
        first = buffer_rollout.generate_rollout(arguments(model, buffer.url, tmp_path), 7, Prompts())
        again = buffer_rollout.generate_rollout(arguments(model, buffer.url, tmp_path), 7, Prompts())
    texts = [[[sample.prompt for sample in group] for group in step.samples] for step in (first, again)]
    assert texts[0] == texts[1]


def test_a_killed_buffer_delays_a_step(model, generator, tmp_path):
    buffer = Buffer(tmp_path / "buffer", "--generator", generator)
    args = arguments(model, buffer.url, tmp_path, fetch_trajectory_retry_times=-1)
    buffer_rollout.generate_rollout(args, 0, Prompts())
    buffer.stop(signal.SIGKILL)
    restarted = []
    timer = threading.Timer(1.0, lambda: restarted.append(Buffer(tmp_path / "buffer", "--generator", generator, port=buffer.port)))
    timer.start()
    step = buffer_rollout.generate_rollout(args, 1, Prompts())
    timer.join()
    with restarted[0]:
        assert len(step.samples) == 2


def test_a_generator_that_ends_too_early_ends_the_run_with_its_name(model, generator, tmp_path):
    (tmp_path / "rows.jsonl").write_text("")
    code = GENERATOR.replace('data.get("linger", 60)', "0")
    (tmp_path / "numbers.py").write_text(code)
    with Buffer(tmp_path / "buffer", "--generator", generator) as buffer:
        with pytest.raises(RuntimeError, match="ended with exit code 0 and no group is finished"):
            buffer_rollout.generate_rollout(arguments(model, buffer.url, tmp_path), 0, Prompts())


def test_no_buffer_at_all_is_an_error_after_the_retries(model, tmp_path):
    args = arguments(model, "http://127.0.0.1:9", tmp_path, fetch_trajectory_retry_times=1)
    with pytest.raises(ConnectionError):
        buffer_rollout.generate_rollout(args, 0, Prompts())


def test_start_says_what_is_wrong(generator, tmp_path):
    with Buffer(tmp_path / "buffer", "--generator", generator) as buffer:
        for body, words in (
            ({}, "task_type"),
            ({"task_type": "numbers"}, "num_repeat_per_sample"),
            ({"task_type": "numbers", "num_repeat_per_sample": "many"}, "num_repeat_per_sample"),
            ({"task_type": "poems", "num_repeat_per_sample": "2"}, "there are: numbers, math"),
        ):
            with pytest.raises(BufferRefusal, match=words) as refusal:
                buffer.client.start(body)
            assert refusal.value.status == 400
        buffer.client.write(item(1, "a"))
        with pytest.raises(BufferRefusal, match="groups of 16 wait") as refusal:
            buffer.client.start({"task_type": "numbers", "num_repeat_per_sample": 2})
        assert refusal.value.status == 409


@pytest.mark.parametrize(("code", "reason"), [("x = 1\n", "defines no TASK_TYPE"), ("raise OSError('no luck')\n", "no luck")])
def test_a_file_that_is_no_generator_is_found_at_the_start(tmp_path, code, reason):
    (tmp_path / "bad.py").write_text(code)
    command = [str(PROGRAM), "buffer", "--folder", str(tmp_path / "b"), "--port", "0", "--generator", str(tmp_path / "bad.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 2 and "generator.log says why" in done.stderr
    assert reason in (tmp_path / "b" / "generator.log").read_text()


def test_a_generator_dies_with_the_buffer(generator, tmp_path):
    (tmp_path / "numbers.py").write_text(
        "import os, time\nTASK_TYPE = 'numbers'\ndef run_rollout(data):\n"
        f"    open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n    time.sleep(600)\n"
    )
    buffer = Buffer(tmp_path / "buffer", "--generator", generator)
    buffer.client.start({"task_type": "numbers", "num_repeat_per_sample": 2})
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.05)
    process = int((tmp_path / "pid").read_text())
    assert buffer.client.status()["generator"] == "running"
    buffer.stop(signal.SIGKILL)
    while True:
        try:
            state = open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            break
        if state == "Z":
            break
        time.sleep(0.05)


def test_the_chat_client_speaks_as_the_openai_package_does():
    class Engine(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/chat/completions" and body == {"messages": [], "top_p": 1, "x": 2}
            text = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Engine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = ChatClient(f"http://127.0.0.1:{server.server_port}")
        answer = client.chat.completions.create(messages=[], top_p=1, tools=None, extra_body={"x": 2})
        server.shutdown()
    assert answer.choices[0].message.content == "hi"

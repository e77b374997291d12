"""What generators of a rollout buffer are made of: rows of a data set, drawn by a function with an engine behind
OpenAI's chat route, scored by another, and written to the buffer."""

import http.client
import json
import logging
import threading
import time
import types
import uuid
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from slime.rollout.buffer_client import BufferClient

__all__ = ["ChatClient", "BaseGenerator", "query_single_turn"]

logger = logging.getLogger(__name__)

_ENGINE_TIMEOUT = 3600
_ATTEMPTS = 3
_LOOK_SECONDS = 0.5
_MOST_THREADS = 256


class ChatClient:
    """`client.chat.completions.create(messages=..., ...)` as the openai package has it, without that package."""

    def __init__(self, url):
        parts = urlsplit(url if "/v1" in url else url.rstrip("/") + "/v1")
        self._address = (parts.hostname, parts.port or 80)
        self._path = parts.path.rstrip("/") + "/chat/completions"
        self.chat = types.SimpleNamespace(completions=types.SimpleNamespace(create=self._create))

    def _create(self, extra_body=None, **payload):
        payload = {name: value for name, value in {**payload, **(extra_body or {})}.items() if value is not None}
        connection = http.client.HTTPConnection(*self._address, timeout=_ENGINE_TIMEOUT)
        try:
            connection.request("POST", self._path, json.dumps(payload), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
            if answer.status != 200:
                raise RuntimeError(f"the engine answers {answer.status}: {text[:400]}")
            return json.loads(text, object_hook=lambda fields: types.SimpleNamespace(**fields))
        finally:
            connection.close()


def query_single_turn(client, messages, sampling_params, tools=None):
    """One answer: (messages with it, finish_reason)."""
    answer = client.chat.completions.create(messages=messages, model="custom", tools=tools, **sampling_params)
    choice = answer.choices[0]
    return [*messages, {"role": "assistant", "content": choice.message.content or ""}], choice.finish_reason


def _rows(input_file):
    number = 0
    for path in [input_file] if isinstance(input_file, str) else input_file:
        with open(path) as file:
            for line in file:
                if line.strip():
                    row = json.loads(line)
                    row.setdefault("instance_id", number)
                    number += 1
                    yield row


def _messages(prompt):
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)


class BaseGenerator:
    """Draws `num_repeat_per_sample` rollouts of each row, whose fields `prompt` and `label` are those of the two keys.
    `max_waiting_groups`: it waits while the buffer has so many."""

    def __init__(
        self,
        remote_engine_url,
        remote_buffer_url,
        num_repeat_per_sample=1,
        num_process=10,
        task_type="math",
        sampling_params=None,
        skip_instance_ids=None,
        max_waiting_groups=None,
        input_key="prompt",
        label_key="label",
    ):
        self.client = ChatClient(remote_engine_url)
        self.buffer = BufferClient(remote_buffer_url)
        self.num_repeat_per_sample = num_repeat_per_sample
        self.num_process = max(1, min(num_process, _MOST_THREADS))
        self.task_type = task_type
        self.sampling_params = dict(sampling_params or {})
        self.skip_instance_ids = list(skip_instance_ids or [])
        self.max_waiting_groups = max_waiting_groups
        self.input_key, self.label_key = input_key, label_key
        self._looking = threading.Lock()

    @classmethod
    def of(cls, data):
        """From what /start_rollout was given."""
        return cls(
            data["remote_engine_url"],
            data["remote_buffer_url"],
            num_repeat_per_sample=int(data["num_repeat_per_sample"]),
            num_process=int(data.get("num_process", 10)),
            task_type=data["task_type"],
            sampling_params=data.get("sampling_params"),
            skip_instance_ids=data.get("skip_instance_ids"),
            max_waiting_groups=data.get("max_waiting_groups"),
            input_key=data.get("input_key") or "prompt",
            label_key=data.get("label_key") or "label",
        )

    def _wait_for_room(self):
        if self.max_waiting_groups is None:
            return
        with self._looking:
            while True:
                try:
                    if self.buffer.status()["whole_groups"] < self.max_waiting_groups:
                        return
                except (OSError, RuntimeError) as error:
                    logger.warning("the buffer does not answer: %s", error)
                time.sleep(_LOOK_SECONDS)

    def _draw(self, row, rollout_func, reward_func):
        for attempt in range(_ATTEMPTS):
            try:
                messages, finish_reason = rollout_func(
                    self.client, _messages(row["prompt"]), dict(self.sampling_params)
                )
                break
            except Exception:
                logger.exception("instance %s, attempt %d of %d", row["instance_id"], attempt + 1, _ATTEMPTS)
                time.sleep(attempt)
        else:
            logger.error("instance %s: given up; its group stays unfinished", row["instance_id"])
            return
        item = {**row, "messages": messages, "finish_reason": finish_reason}
        self.buffer.write(
            {
                "uid": str(uuid.uuid4()),
                "instance_id": row["instance_id"],
                "messages": messages,
                "reward": reward_func(item),
                "extra_info": {
                    **{name: value for name, value in row.items() if name != "instance_id"},
                    "finish_reason": finish_reason,
                    "timestamp": str(time.time()),
                    "round_number": sum(message["role"] == "assistant" for message in messages),
                },
            },
            patience=3600,
        )

    def run(self, input_file, rollout_func, reward_func):
        """All rows once. An exception of `reward_func` ends it."""
        with ThreadPoolExecutor(self.num_process) as threads:
            drawn = []
            for row in _rows(input_file):
                if row["instance_id"] in self.skip_instance_ids:
                    self.skip_instance_ids.remove(row["instance_id"])
                    continue
                row["prompt"], row["label"] = row[self.input_key], row.get(self.label_key)
                self._wait_for_room()
                drawn += [
                    threads.submit(self._draw, dict(row), rollout_func, reward_func)
                    for _ in range(self.num_repeat_per_sample)
                ]
                for each in [each for each in drawn if each.done()]:
                    each.result()
                    drawn.remove(each)
                while len(drawn) >= 2 * self.num_process:
                    drawn.pop(0).result()
            for each in drawn:
                each.result()

    def entry(self, input_file, rollout_func, reward_func, num_epoch=1):
        for _ in range(num_epoch):
            self.run(input_file, rollout_func, reward_func)

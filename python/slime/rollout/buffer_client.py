"""Speaking with a rollout buffer (`slime buffer`): generators write finished rollouts, trainers take whole groups.

Plain HTTP on the standard library, for threads. What a write acknowledged is on the buffer's disk; a write that is
repeated with the same uid counts once, and a read that is repeated with the same request_id gets the same groups.
"""

import http.client
import json
import os
import time
from urllib.parse import urlsplit

__all__ = ["BufferClient", "BufferRefusal"]

_LARGEST_TIMEOUT = 120


class BufferRefusal(RuntimeError):
    """An answer that is not 2xx; `status` is its number."""

    def __init__(self, method, path, status, text):
        super().__init__(f"{method} {path}: status {status}: {text[:400]}")
        self.status = status


class BufferClient:
    """One connection for each call. `key` (or SLIME_API_KEY) is for a buffer that asks for one."""

    def __init__(self, url, key=None):
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{url}: should be http://HOST:PORT")
        self._address = (parts.hostname, parts.port or 80)
        self._prefix = parts.path.rstrip("/")
        key = key if key is not None else os.environ.get("SLIME_API_KEY")
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def _call(self, method, path, body=None):
        connection = http.client.HTTPConnection(*self._address, timeout=_LARGEST_TIMEOUT)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, self._prefix + path, body=data, headers=self._headers)
            answer = connection.getresponse()
            text = answer.read()
            if not 200 <= answer.status < 300:
                raise BufferRefusal(method, path, answer.status, text.decode("utf-8", "replace"))
            return json.loads(text)
        except http.client.HTTPException as error:
            raise ConnectionError(f"{method} {path}: {type(error).__name__} {error}") from error
        finally:
            connection.close()

    def write(self, item, patience=60.0):
        """Hands over one rollout. Tries again for `patience` seconds while the buffer is full or away; an item without
        a uid is tried once, because it could then be there twice."""
        end = time.monotonic() + patience
        pause = 0.1
        while True:
            try:
                return self._call("POST", "/buffer/write", item)
            except BufferRefusal as refusal:
                if refusal.status != 503 or time.monotonic() > end:
                    raise
            except OSError:
                if "uid" not in item or time.monotonic() > end:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 5.0)

    def take(self, max_groups, request_id=None):
        """(items, meta_info): at most `max_groups` whole groups, perhaps none."""
        body = {"max_groups": max_groups}
        if request_id:
            body["request_id"] = request_id
        data = self._call("POST", "/get_rollout_data", body)["data"]
        return data["data"], data["meta_info"]

    def start(self, payload):
        """Starts the generator of payload["task_type"], and ends the one before."""
        return self._call("POST", "/start_rollout", payload)

    def status(self):
        return self._call("GET", "/buffer/status")

"""A reward that is a function of the script: the run's plug-in host asks for it over a socket that only this user can reach.

A message is its length as four bytes, then JSON. The host sends {"samples": [...]}; the answer is {"rewards": [...]} or
{"error": "..."}.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slime.loop.calls import Sample
from slime.loop.rewards import as_group_reward

__all__ = ["RewardSocket"]

_LONGEST_MESSAGE = 1 << 28


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """The next message; None at the end."""
    head = _exactly(connection, 4)
    if head is None:
        return None
    (length,) = struct.unpack(">I", head)
    if length > _LONGEST_MESSAGE:
        raise ConnectionError(f"a message of {length} bytes")
    body = _exactly(connection, length)
    return None if body is None else json.loads(body)


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    body = json.dumps(message, default=str).encode()
    connection.sendall(struct.pack(">I", len(body)) + body)


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    parts = b""
    while len(parts) < count:
        part = connection.recv(min(1 << 20, count - len(parts)))
        if not part:
            return None
        parts += part
    return parts


class RewardSocket:
    """Answers until it is closed, each connection in a thread of its own. `failure` is the first error of the function."""

    def __init__(self, reward: Callable[..., Any], args: Any = None) -> None:
        self._reward = as_group_reward(reward, args)
        self._folder = tempfile.TemporaryDirectory(prefix="slime-reward-")
        self.path = Path(self._folder.name) / "socket"
        self.failure: BaseException | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(self.path))
        os.chmod(self.path, 0o600)
        self._socket.listen(64)
        threading.Thread(target=self._accept, name="slime-reward", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while (message := receive(connection)) is not None:
                    send(connection, self._answer([Sample(each) for each in message["samples"]]))
            except OSError:
                pass  # the host is gone

    def _answer(self, samples: list[Sample]) -> dict[str, Any]:
        try:
            return {"rewards": self._reward(samples)}
        except BaseException as error:
            self.failure = self.failure or error
            return {"error": "".join(traceback.format_exception(type(error), error, error.__traceback__))}

    def close(self) -> None:
        self._socket.close()
        self._folder.cleanup()

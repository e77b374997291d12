"""The other end of a script's reward, in the run's plug-in host: --custom-rm-path slime.loop.reward_client.score --group-rm."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

from slime.loop.reward_socket import receive, send

_of_thread = threading.local()


def _record(sample: Any) -> dict[str, Any]:
    return {
        "prompt": sample.prompt,
        "response": sample.response,
        "label": sample.label,
        "metadata": dict(sample.metadata or {}),
        "tokens": [int(each) for each in sample.tokens],
        "response_length": sample.response_length,
        "index": sample.index,
        "group_index": sample.group_index,
        "status": str(getattr(sample.status, "value", sample.status)),
    }


def _ask(path: str, samples: list[Any]) -> list[float]:
    connection = getattr(_of_thread, "connection", None)
    if connection is None:
        connection = _of_thread.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(path)
    send(connection, {"samples": [_record(each) for each in samples]})
    answer = receive(connection)
    if answer is None:
        raise RuntimeError("the script that has the reward is gone")
    if "error" in answer:
        raise RuntimeError("the reward of the script failed:\n" + answer["error"])
    return answer["rewards"]


async def score(args: Any, samples: list[Any], **_: Any) -> list[float]:
    return await asyncio.to_thread(_ask, args.reward_socket, list(samples))

"""Requests to the run's door: HTTP on loopback with the standard library alone."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.parse
from typing import Any

from slime.loop.errors import Refused

__all__ = ["Door"]

_ROOT = "/api/run/v1/"


class Door:
    """Any number of threads; each request has a connection of its own."""

    def __init__(self, url: str, token: str) -> None:
        address = urllib.parse.urlsplit(url)
        self._host, self._port = address.hostname or "127.0.0.1", address.port
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(self, method: str, route: str, body: dict[str, Any] | None = None, timeout: float | None = 60.0) -> dict[str, Any]:
        """The object of the answer. Raises Refused for one that is no success, OSError when nobody answers (a TimeoutError
        where that took too long)."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, _ROOT + route, body=text, headers=self._headers)
            answer = connection.getresponse()
            data = answer.read()
        except socket.timeout as error:  # not a TimeoutError before Python 3.10
            raise TimeoutError(str(error)) from error
        except http.client.HTTPException as error:
            raise ConnectionError(f"the run's door: {error!r}") from error
        finally:
            connection.close()
        try:
            value = json.loads(data)
        except ValueError:
            raise ConnectionError(f"the run's door answered {answer.status} without JSON") from None
        if answer.status == 200:
            return value
        problem = value.get("error")
        raise Refused(problem.get("message", str(problem)) if isinstance(problem, dict) else str(problem))

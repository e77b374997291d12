"""Requests to `slime tinker`: Tinker's routes over HTTP on loopback, with the standard library alone."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from slime.loop.errors import Error, Refused, RunOver

__all__ = ["Pending", "Service", "beside"]

_ROOT = "/api/v1/"
_LONGEST_REQUEST = 120.0  # seconds; the program answers "try again" after 40

_Result = TypeVar("_Result")


async def beside(call: Callable[[], _Result], name: str = "slime-call") -> _Result:
    """`call` in a thread that nobody joins, so that Ctrl-C is not held up by what is under way."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    outcome: dict[str, Any] = {}

    def tell() -> None:
        if not done.done():
            done.set_result(None)

    def run() -> None:
        try:
            outcome["result"] = call()
        except BaseException as error:
            outcome["error"] = error
        try:
            loop.call_soon_threadsafe(tell)
        except RuntimeError:
            pass  # the loop is closed

    threading.Thread(target=run, name=name, daemon=True).start()
    await done
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


class Service:
    """Any number of threads, each with a connection that it keeps."""

    def __init__(self, url: str, token: str, when_gone: Callable[[OSError], RunOver]) -> None:
        address = urllib.parse.urlsplit(url)
        self._host, self._port = address.hostname or "127.0.0.1", address.port
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json"}
        self._when_gone = when_gone
        self._of_thread = threading.local()

    def call(self, method: str, route: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The object of the answer. Raises Refused for one that is no success, RunOver when nobody is there."""
        text = None if body is None else json.dumps(body).encode()
        try:
            status, data = self._send(method, _ROOT + route, text)
        except OSError as error:
            raise self._when_gone(error) from error
        try:
            value = json.loads(data)
        except ValueError:
            raise Error(f"{route}: the program answered {status} without JSON") from None
        if status == 200:
            return value
        problem = value.get("detail") or value.get("error")
        raise Refused(problem.get("message", str(problem)) if isinstance(problem, dict) else str(problem))

    def post(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        return self.call("POST", route, body)

    def _send(self, method: str, path: str, text: bytes | None) -> tuple[int, bytes]:
        while True:
            kept: http.client.HTTPConnection | None = getattr(self._of_thread, "connection", None)
            is_new = kept is None
            connection = self._connect() if kept is None else kept
            try:
                connection.request(method, path, body=text, headers=self._headers)
                answer = connection.getresponse()
                return answer.status, answer.read()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
                self._forget(connection)
                if is_new:
                    raise ConnectionError(f"the program closed the connection: {error!r}") from error
                # An idle connection that the server had closed: once more, with a new one.
            except http.client.HTTPException as error:
                self._forget(connection)
                raise ConnectionError(repr(error)) from error
            except BaseException:  # Ctrl-C, a time-out: what comes on it would be another request's
                self._forget(connection)
                raise

    def _connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_LONGEST_REQUEST)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._of_thread.connection = connection
        return connection

    def _forget(self, connection: http.client.HTTPConnection) -> None:
        self._of_thread.connection = None
        connection.close()


class Pending(Generic[_Result]):
    """A request under way: ``result()`` waits for it, ``await`` too."""

    def __init__(
        self,
        service: Service,
        request_id: str,
        read: Callable[[dict[str, Any]], _Result],
        when_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.request_id = request_id
        self._service = service
        self._read = read
        self._when_failed = when_failed
        self._lock = threading.Lock()
        self._outcome: tuple[_Result | None, Error | None] | None = None

    def done(self) -> bool:
        """Whether its answer is here. A request that nobody waits for has none."""
        return self._outcome is not None

    def has_failed(self) -> bool:
        """Whether its answer is here and says that it was not done."""
        return self._outcome is not None and self._outcome[1] is not None

    def result(self, timeout: float | None = None) -> _Result:
        """Waits until it is done. Raises Refused where the request cannot be done, and then nothing was changed; Error where the
        program failed at it; RunOver where the program has ended; TimeoutError."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while self._outcome is None:
                if until is not None and time.monotonic() >= until:
                    raise TimeoutError(f"request {self.request_id}: not done in time")
                self._ask()
            result, error = self._outcome
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    def _ask(self) -> None:
        answer = self._service.post("retrieve_future", {"request_id": self.request_id})
        if answer.get("type") == "try_again":
            return
        if "error" in answer:
            kind = Refused if answer.get("category") == "user" else Error
            self._outcome = (None, kind(answer["error"]))
            self._when_failed()
        else:
            self._outcome = (self._read(answer), None)

    def __await__(self) -> Generator[Any, None, _Result]:
        return beside(self.result, f"slime-{self.request_id}").__await__()

"""The HTTP client against a server that misbehaves in the ways servers do."""

import asyncio
import socket
import threading

import pytest
from slime.utils import http_utils
from slime.utils.http_utils import HttpStatusError, get, post, request


class Server:
    """Each connection is served by `script(lines of a request, body, number of the request)`: bytes, or None to close."""

    def __init__(self, script):
        self.script, self.connections, self.requests = script, 0, []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as file:
            while True:
                lines = []
                while (line := file.readline().strip()) != b"":
                    lines.append(line.decode())
                if not lines:
                    return
                length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length")), 0)
                body = file.read(length)
                self.requests.append((lines, body))
                answer = self.script(lines, body, len(self.requests))
                if answer is None:
                    return
                connection.sendall(answer)
                if b"Connection: close" in answer:
                    return

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.socket.close()


def answer(body, status="200 OK", more=""):
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n{body}".encode()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(http_utils, "RETRY_SECONDS", 0.01)


def test_post_sends_json_and_parses_the_answer():
    with Server(lambda lines, body, n: answer('{"a": [1, "\\u00fc"]}')) as server:
        assert asyncio.run(post(server.url + "/x?y=1", {"k": "\u00fc"}, headers={"X-Key": "v"})) == {"a": [1, "\u00fc"]}
        lines, body = server.requests[0]
        assert lines[0] == "POST /x?y=1 HTTP/1.1" and "X-Key: v" in lines and "Content-Type: application/json" in lines
        assert body == b'{"k":"\\u00fc"}'


def test_text_is_text_and_chunks_are_put_together():
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=1\r\nde\r\n0\r\nTrailer: 1\r\n\r\n"
    with Server(lambda lines, body, n: chunked) as server:
        assert asyncio.run(post(server.url, None)) == "abcde"


def test_connections_are_kept_and_used_again():
    async def calls(url):
        for _ in range(5):
            await post(url, {})
        await asyncio.gather(*(post(url, {}) for _ in range(3)))

    with Server(lambda lines, body, n: answer("1")) as server:
        asyncio.run(calls(server.url))
        assert len(server.requests) == 8 and server.connections <= 3


def test_a_kept_connection_that_was_closed_is_no_failure():
    async def calls(url):
        first = await post(url, {}, max_retries=1)
        await asyncio.sleep(0.05)
        return first, await post(url, {}, max_retries=1)

    with Server(lambda lines, body, n: None if n == 2 else answer(str(n))) as server:
        assert asyncio.run(calls(server.url)) == (1, 3)


def test_failures_are_tried_again_and_the_last_one_is_told():
    with Server(lambda lines, body, n: answer("busy", "503 Busy") if n < 3 else answer("7")) as server:
        assert asyncio.run(post(server.url, {})) == 7
    with Server(lambda lines, body, n: answer("no", "400 Bad")) as server:
        with pytest.raises(HttpStatusError, match="400: no") as caught:
            asyncio.run(post(server.url, {}, max_retries=2))
        assert caught.value.status == 400 and len(server.requests) == 1, "a refused request is refused again"
    with Server(lambda lines, body, n: answer("no", "503 Busy")) as server:
        with pytest.raises(HttpStatusError, match="503: no"):
            asyncio.run(post(server.url, {}, max_retries=2))
        assert len(server.requests) == 2
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(OSError):
        asyncio.run(post(f"http://127.0.0.1:{port}", {}, max_retries=2))


def test_an_answer_without_a_length_ends_with_its_connection():
    with Server(lambda lines, body, n: b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[2]") as server:
        assert asyncio.run(get(server.url + "/workers")) == [2]


def test_an_answer_that_is_cut_off_is_an_error():
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc"
    with Server(lambda lines, body, n: cut) as server:
        with pytest.raises(ConnectionError):
            asyncio.run(request("GET", server.url))


def test_a_request_that_is_cancelled_closes_its_connection():
    gone = threading.Event()

    def wait(lines, body, n):
        gone.wait(5)
        return None

    async def call(url):
        task = asyncio.ensure_future(post(url, {}))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not any(http_utils._idle_connections(("http", "127.0.0.1", int(url.rsplit(":", 1)[1]))))

    with Server(wait) as server:
        asyncio.run(call(server.url))
        gone.set()


def test_headers_cannot_smuggle():
    with pytest.raises(ValueError, match="line break"):
        asyncio.run(request("POST", "http://127.0.0.1:1/", {}, {"X": "a\r\nY: b"}))


def test_a_large_body_both_ways():
    text = "x" * 3_000_000
    with Server(lambda lines, body, n: answer(body.decode())) as server:
        assert asyncio.run(post(server.url, {"t": text})) == {"t": text}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 501])
def test_a_request_that_cannot_succeed_is_sent_once(status):
    with Server(lambda lines, body, n: answer("why", f"{status} No")) as server:
        with pytest.raises(HttpStatusError, match=f"{status}: why"):
            asyncio.run(post(server.url, {}))
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_each_failure_that_may_pass_is_logged(status, caplog):
    with Server(lambda lines, body, n: answer("why", f"{status} Later") if n < 3 else answer("1")) as server:
        assert asyncio.run(post(server.url, {})) == 1
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 2 and all(f"status {status}: why" in line and server.url in line for line in lines)
        assert "call 1 of 60 failed" in lines[0] and "call 2 of 60 failed" in lines[1]


def test_calls_of_older_and_newer_slime_are_taken():
    async def calls(url):
        return await post(url, {"a": 1}, use_http2=True), await post(url, {}, score_centering_top_k=3), await get(url, use_http2=False)

    with Server(lambda lines, body, n: answer(str(n))) as server:
        assert asyncio.run(calls(server.url)) == (1, 2, 3)


def test_a_run_that_ends_repeats_nothing(monkeypatch):
    monkeypatch.setattr(http_utils, "_gives_up", False)
    http_utils.give_up_retries()
    with Server(lambda lines, body, n: answer("why", "503 Busy")) as server:
        with pytest.raises(HttpStatusError):
            asyncio.run(post(server.url, {}))
        assert len(server.requests) == 1

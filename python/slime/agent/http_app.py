"""A small HTTP/1.1 server for the endpoints that agents speak to: routes, JSON, event streams, and a handler that is
cancelled when its client goes away."""

import asyncio
import json
import logging

from slime.agent.peer_user import is_own_user

__all__ = ["Application", "Request", "Response", "HttpProblem"]

logger = logging.getLogger(__name__)

_STRANGERS_LIMIT_BYTES = 1 << 20
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    429: "Too Many Requests",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


def _json(value):
    """As people read it; half of a pair of surrogates, which a model may write, as an escape."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text) else json.dumps(value)


class HttpProblem(Exception):
    """Becomes an answer of that status. `code` and `param`: for protocols whose errors have them."""

    def __init__(self, status, message, *, code=None, param=None):
        super().__init__(message)
        self.status, self.code, self.param = status, code, param


class Response:
    """`headers`: further ones, by name."""

    def __init__(self, body=b"", status=200, content_type="text/plain; charset=utf-8", headers=None):
        self.body = body.encode() if isinstance(body, str) else body
        self.status = status
        self.content_type = content_type
        self.headers = dict(headers or {})

    @classmethod
    def of_json(cls, value, status=200, headers=None):
        return cls(_json(value), status, "application/json; charset=utf-8", headers)

    @classmethod
    def of_events(cls, events):
        """[(name or None, JSON value or text)] as a stream of server-sent events."""
        lines = []
        for name, value in events:
            text = value if isinstance(value, str) else _json(value)
            lines.append((f"event: {name}\n" if name else "") + f"data: {text}\n\n")
        return cls("".join(lines), 200, "text/event-stream")


class Request:
    """Header names are in small letters."""

    def __init__(self, method, path, headers, body, writer):
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self._writer = writer
        self.is_answered = False
        self.session = None  # of the path, where the application takes it from there

    def json(self):
        try:
            value = json.loads(self.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise HttpProblem(400, f"the body is no JSON: {error}") from None
        if not isinstance(value, dict):
            raise HttpProblem(400, "the body is no JSON object")
        return value

    async def reply(self, response):
        """Sends the answer; returns when the system has taken it. ConnectionError when the client is gone."""
        self.is_answered = True
        if self._writer.is_closing():
            raise ConnectionResetError("the client is gone")
        reason = _REASONS.get(response.status, "Status")
        head = (
            f"HTTP/1.1 {response.status} {reason}\r\nContent-Type: {response.content_type}\r\n"
            f"Content-Length: {len(response.body)}\r\nCache-Control: no-cache\r\n"
        )
        for name, value in response.headers.items():
            head += f"{name}: " + str(value).encode("ascii", "replace").decode().replace("\r", " ").replace("\n", " ") + "\r\n"
        head += "\r\n"
        self._writer.write(head.encode() + (b"" if self.method == "HEAD" else response.body))
        await self._writer.drain()


class Application:
    """Handlers are coroutine functions of a Request that return a Response, or None when they have replied. `before`, if
    any, sees each request before its body is read; False from it says that a stranger asks, whose body has to be short.
    Over loopback it serves this user and root: processes of others are cut off before a byte is read, unless
    `serves_other_users` is set."""

    def __init__(self, body_limit_bytes=64 << 20, before=None):
        self.serves_other_users = False
        self._routes = {}
        self._before = before
        self._limit = body_limit_bytes
        self._server = None
        self._connections = set()

    def add(self, method, path, handler):
        self._routes[method, path] = handler

    async def start(self, host, port):
        """Listens; the port, which is chosen for 0."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=1 << 20)
        return self._server.sockets[0].getsockname()[1]

    async def stop(self):
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader, writer):
        if not self.serves_other_users and not is_own_user(writer.get_extra_info("socket")):
            return writer.close()
        task = asyncio.current_task()
        self._connections.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        except Exception:
            logger.exception("a connection of an agent broke")
        finally:
            self._connections.discard(task)
            writer.close()

    async def _read(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        method, target, version = first.split(" ", 2)
        headers = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if colon:
                headers[name.strip().lower()] = value.strip()
        request = Request(method, target.split("?", 1)[0], headers, b"", writer)
        is_stranger = self._before is not None and self._before(request) is False
        limit = min(self._limit, _STRANGERS_LIMIT_BYTES) if is_stranger else self._limit
        is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        length = 0 if is_chunked else int(headers.get("content-length", 0))
        if length < 0:
            raise HttpProblem(400, "a length below 0")
        if length > limit:
            raise HttpProblem(413, "the body is too long")
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await self._read_chunks(reader, limit) if is_chunked else await reader.readexactly(length)
        request.body = body
        return request, version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"

    @staticmethod
    async def _read_chunks(reader, limit):
        body = b""
        while size := int((await reader.readline()).split(b";", 1)[0], 16):
            if size < 0:
                raise HttpProblem(400, "a chunk of a length below 0")
            if len(body) + size > limit:
                raise HttpProblem(413, "the body is too long")
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        while (await reader.readline()).strip():
            pass
        return body

    async def _serve_one(self, reader, writer):
        try:
            request, keep = await self._read(reader, writer)
        except (HttpProblem, ValueError) as error:
            problem = error if isinstance(error, HttpProblem) else HttpProblem(400, "this is no HTTP/1.1 request")
            await Request("GET", "", {}, b"", writer).reply(Response(str(problem), problem.status))
            return False
        answering = asyncio.ensure_future(self._answer(request))
        # Nothing is due from the client now but the end of its connection, or a request that it sends ahead.
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                if gone.result():
                    await answering  # a request sent ahead is not read: the connection ends behind this answer
                    return False
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)
                return False
            answering.result()
            if gone.done():
                return False
        finally:
            answering.cancel()
            if not gone.done():
                gone.cancel()
                await asyncio.gather(gone, return_exceptions=True)
        return keep

    async def _answer(self, request):
        method = "GET" if request.method == "HEAD" else request.method
        handler = self._routes.get((method, request.path))
        if handler is None:
            known = any(path == request.path for _, path in self._routes)
            response = Response(f"no route {method} {request.path}", 405 if known else 404)
        else:
            try:
                response = await handler(request)
            except HttpProblem as problem:
                response = Response.of_json({"error": {"message": str(problem)}}, problem.status)
            except (ConnectionError, asyncio.CancelledError):
                raise
            except Exception as error:
                logger.exception("%s %s failed", request.method, request.path)
                response = Response.of_json({"error": {"message": f"{type(error).__name__}: {error}"}}, 500)
        if response is not None and not request.is_answered:
            await request.reply(response)

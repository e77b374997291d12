"""HTTP to the engine and to services beside it: `await post(url, payload)`, `await get(url)`.

HTTP/1.1 on asyncio's streams with connections kept alive, and no package behind it. Proxies of the environment are not
asked: an engine is near. A request has no timeout of its own; one that is cancelled closes its connection, by which an
engine knows that nobody waits.
"""

import asyncio
import ipaddress
import json
import logging
import os
import random
import socket
import ssl
import time
import weakref
from urllib.parse import urlsplit

from slime import turns

__all__ = ["post", "get", "get_rollout_num_engines", "HttpStatusError", "is_port_available", "find_available_port"]

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
# What may be gone when the same request comes again: a server that starts, is busy, or whose worker was lost.
_PASSING_STATUS = frozenset((408, 425, 429, 500, 502, 503, 504))
_HEAD_LIMIT_BYTES = 1 << 20


class HttpStatusError(RuntimeError):
    """An answer that is not 2xx; `status` and `text` say what it was."""

    def __init__(self, method, url, status, text):
        super().__init__(f"{method} {url}: status {status}: {text[:400]}")
        self.status = status
        self.text = text


class _Stale(Exception):
    """A connection that was kept was closed by the other side before it answered."""


# Idle connections of each event loop, by (scheme, host, port). A loop that ends takes its own along.
_idle = weakref.WeakKeyDictionary()


def _idle_connections(key):
    return _idle.setdefault(asyncio.get_running_loop(), {}).setdefault(key, [])


async def _connect(scheme, host, port):
    context = ssl.create_default_context() if scheme == "https" else None
    reader, writer = await asyncio.open_connection(host, port, ssl=context, limit=_HEAD_LIMIT_BYTES)
    raw = writer.get_extra_info("socket")
    if raw is not None:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return reader, writer


async def _read_chunks(reader):
    chunks = []
    while True:
        size = int((await reader.readline()).split(b";", 1)[0], 16)
        if size == 0:
            while (await reader.readline()).strip():  # trailers
                pass
            return b"".join(chunks)
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)


async def _read_answer(reader, method):
    """(status, body, whether the connection can be used again)."""
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        version, status = first.split(" ", 2)[:2]
        if status != "100":
            break
    fields = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            fields[name.strip().lower()] = value.strip()
    keep = version == "HTTP/1.1" and fields.get("connection", "").lower() != "close"
    status = int(status)
    if method == "HEAD" or status in (204, 304):
        body = b""
    elif "chunked" in fields.get("transfer-encoding", "").lower():
        body = await _read_chunks(reader)
    elif "content-length" in fields:
        body = await reader.readexactly(int(fields["content-length"]))
    else:
        body, keep = await reader.read(-1), False
    return status, body, keep


async def _exchange(connection, is_reused, head, body, method):
    reader, writer = connection
    try:
        writer.write(head + body if len(body) < 65536 else head)
        if len(body) >= 65536:
            writer.write(body)
        await writer.drain()
        return await _read_answer(reader, method)
    except asyncio.IncompleteReadError as error:
        if is_reused and not error.partial:
            raise _Stale from error
        raise ConnectionError("the connection was closed before the answer was whole") from error
    except (ConnectionResetError, BrokenPipeError) as error:
        if is_reused:
            raise _Stale from error
        raise


async def request(method, url, payload=None, headers=None):
    """(status, body) of one request; no retries but for a kept connection that turns out to be closed."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no http address")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    key = (parts.scheme, parts.hostname, port)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    body = b"" if payload is None else json.dumps(payload, separators=(",", ":")).encode()
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}:{port}", "Accept: */*"]
    if payload is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError(f"{method} {url}: a line break in a header")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    while True:
        idle = _idle_connections(key)
        is_reused = bool(idle)
        connection = idle.pop() if is_reused else await _connect(*key)
        if is_reused and (connection[0].at_eof() or connection[1].is_closing()):
            connection[1].close()
            continue
        keep = False
        try:
            status, answer, keep = await _exchange(connection, is_reused, head, body, method)
            return status, answer
        except _Stale:
            continue
        finally:
            if keep:
                _idle_connections(key).append(connection)
            else:
                connection[1].close()


def _parsed(method, url, status, body):
    if not 200 <= status < 300:
        raise HttpStatusError(method, url, status, body.decode("utf-8", "replace"))
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")


_gives_up = False


def give_up_retries():
    """From now on no failed call is repeated: the run ends."""
    global _gives_up
    _gives_up = True


def can_succeed_later(error):
    """Whether the same request may be answered when it is sent again."""
    if _gives_up:
        return False
    if isinstance(error, HttpStatusError):
        return error.status in _PASSING_STATUS
    if isinstance(error, ssl.SSLCertVerificationError):
        return False
    return isinstance(error, (OSError, EOFError, asyncio.TimeoutError))


async def post(url, payload, max_retries=60, headers=None, *, use_http2=False, score_centering_top_k=None):
    """What the server answers to `payload` as JSON: parsed, or text. A failure that may pass (no connection, a busy or
    broken server) is tried again after a second, `max_retries` calls in all, and each is logged; any other, a refused
    request above all, is raised at once. `use_http2` is taken from functions of older slime: an engine on loopback
    answers HTTP/1.1 as fast. `score_centering_top_k` of newer ones: what it asks for is decoded where it is read."""
    if not isinstance(max_retries, int) or max_retries < 1:
        raise ValueError(f"{url}: max_retries is {max_retries!r}")
    begun = time.monotonic()
    for attempt in range(1, max_retries + 1):
        try:
            status, body = await request("POST", url, payload or {}, headers)
            answer = _parsed("POST", url, status, body)
            turns.note(answer, payload)
            return answer
        except Exception as error:
            if attempt >= max_retries or not can_succeed_later(error):
                raise
            logger.warning(
                "POST %s: %s: call %d of %d failed, after %.0f s; again in %g s",
                url, _told(error), attempt, max_retries, time.monotonic() - begun, RETRY_SECONDS,
            )  # fmt: skip
        await asyncio.sleep(RETRY_SECONDS)


def _told(error):
    """An error in one line; the address is said by whoever tells it."""
    if isinstance(error, HttpStatusError):
        return f"status {error.status}: {error.text[:200]}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


async def get(url, *, use_http2=False):
    """What the server answers, parsed as JSON. One call. `use_http2` as with post()."""
    status, body = await request("GET", url)
    answer = _parsed("GET", url, status, body)
    if isinstance(answer, str) and not body.lstrip().startswith(b'"'):
        raise ValueError(f"GET {url}: the answer is no JSON: {answer[:200]}")
    return answer


def init_http_client(args):
    """Nothing: connections are made when they are needed."""


def get_rollout_num_engines(args):
    """Engines behind the router's address."""
    engines = getattr(args, "rollout_num_engines", None)
    if engines is not None:
        return int(engines)
    gpus = getattr(args, "rollout_num_gpus", None) or 0
    return max(1, gpus // (getattr(args, "rollout_num_gpus_per_engine", None) or 1)) if gpus > 0 else 0


def get_sglang_client_concurrency(args):
    """Requests that all engines together take at a time: of each no more than it runs side by side."""
    each = args.sglang_server_concurrency
    running = getattr(args, "sglang_max_running_requests", None)
    if running is not None:
        each = min(each, int(running))
    return max(1, int(each)) * get_rollout_num_engines(args)


def is_port_available(port):
    """Whether a server could listen on it now, on all interfaces."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            probe.listen(1)
            return True
        except (OSError, OverflowError):
            return False


def find_available_port(base_port):
    """A free port from 100 to 1000 above `base_port`, another one each time."""
    ports = [port for port in range(base_port + 100, base_port + 1001) if port < 65536]
    random.shuffle(ports)
    for port in ports:
        if is_port_available(port):
            return port
    raise OSError(f"no free port from 100 to 1000 above {base_port}")


def get_host_info():
    """(this machine's name, the address that others reach it by); SLIME_HOST_IP says it, where it is set."""
    name = socket.gethostname()
    stated = os.environ.get("SLIME_HOST_IP")
    if stated:
        return name, stated
    wants_ipv6 = os.environ.get("SLIME_PREFER_IPV6", "0").lower() in ("1", "true", "yes", "on")
    family, loopback = (socket.AF_INET6, "::1") if wants_ipv6 else (socket.AF_INET, "127.0.0.1")
    try:
        # Connecting a datagram socket sends nothing; it asks the routing table.
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(("2001:db8::1" if wants_ipv6 else "192.0.2.1", 80))
            return name, probe.getsockname()[0]
    except OSError:
        pass
    try:
        addresses = [info[4][0] for info in socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)]
    except OSError:
        addresses = []
    return name, next((address for address in addresses if not ipaddress.ip_address(address).is_loopback), loopback)


def _wrap_ipv6(host):
    try:
        return f"[{ipaddress.IPv6Address(host.strip('[]'))}]"
    except ipaddress.AddressValueError:
        return host

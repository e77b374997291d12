"""A web application on a thread of its own: one of slime.agent.http_app, or of aiohttp where that is installed."""

import asyncio
import contextvars
import logging
import threading
from dataclasses import dataclass
from typing import Any

from slime.agent.http_app import Application

__all__ = ["AppHandle", "FilteredAccessLogger", "run_app_in_thread"]


class FilteredAccessLogger:
    """An access logger for aiohttp that is silent about what went well and fast."""

    SLOW_THRESHOLD_SEC = 120.0
    enabled = True

    def __init__(self, logger=None, log_format=""):
        self.logger = logger or logging.getLogger(__name__)

    def log(self, request, response, time):
        if request.method == "HEAD" or (response.status == 200 and time <= self.SLOW_THRESHOLD_SEC):
            return
        self.logger.info("%s %s: status %s after %.3f s", request.method, request.path, response.status, time)


@dataclass
class AppHandle:
    host: str
    port: int
    thread: threading.Thread
    loop: asyncio.AbstractEventLoop
    runner: Any

    def stop(self):
        """Ends what is being served, then the thread."""
        stopping = self.runner.stop() if isinstance(self.runner, Application) else self.runner.cleanup()
        try:
            asyncio.run_coroutine_threadsafe(stopping, self.loop).result(timeout=10)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(timeout=5)


async def _start(app, host, port, runner_kwargs):
    if isinstance(app, Application):
        return app, await app.start(host, port)
    from aiohttp import web
    from aiohttp.abc import AbstractAccessLogger

    kwargs = dict(runner_kwargs)
    wanted = kwargs.get("access_log_class")
    if wanted is not None and not issubclass(wanted, AbstractAccessLogger):
        kwargs["access_log_class"] = type(wanted.__name__, (wanted, AbstractAccessLogger), {})
    runner = web.AppRunner(app, **kwargs)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner, runner.addresses[0][1]


def run_app_in_thread(
    app, *, host="127.0.0.1", port=0, thread_name="agent app", start_timeout_sec=15.0, runner_kwargs=None
):
    """Returns once it listens, on loopback unless `host` says otherwise. `runner_kwargs` go to aiohttp's AppRunner;
    applications of this package need none."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=thread_name, daemon=True)
    thread.start()
    # In a context of its own: what it serves is not of the call in which it happens to begin.
    start = _start(app, host, port, runner_kwargs or {})
    starting = contextvars.Context().run(asyncio.run_coroutine_threadsafe, start, loop)
    try:
        runner, actual_port = starting.result(timeout=start_timeout_sec)
    except BaseException:
        loop.call_soon_threadsafe(loop.stop)
        raise
    return AppHandle(host, actual_port, thread, loop, runner)

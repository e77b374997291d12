"""Ending what servers of the engines' protocol are doing."""

import asyncio
import logging
from typing import Any, List

from slime.utils.http_utils import get, post

__all__ = ["abort_server_until_idle", "abort_servers_until_idle", "num_requests_from_load"]

ABORT_RETRY_INTERVAL_SECONDS = 3

logger = logging.getLogger(__name__)

# Names of one server's requests, whatever they do; without any, those that run and those that wait.
_ALL = ("num_reqs", "num_total_reqs", "total_reqs")
_PARTS = (("num_running_reqs", "total_running_reqs"), ("num_waiting_reqs", "total_waiting_reqs"))


def num_requests_from_load(load: Any) -> int:
    """Requests that an answer of /v1/loads speaks of."""
    if isinstance(load, list):
        return sum(map(num_requests_from_load, load))
    if not isinstance(load, dict):
        return 0
    if "loads" in load:
        return num_requests_from_load(load["loads"])
    for name in _ALL:
        if isinstance(load.get(name), int):
            return load[name]
    found = (next((load[name] for name in names if name in load), 0) for names in _PARTS)
    return sum(count for count in found if isinstance(count, int))


async def abort_server_until_idle(url: str, retry_interval: float = ABORT_RETRY_INTERVAL_SECONDS) -> None:
    """Aborts everything there, again until it has no request: a conversation may send its next turn meanwhile."""
    calls = 0
    while True:
        try:
            await post(f"{url}/abort_request", {"abort_all": True}, max_retries=1)
        except Exception as error:
            logger.warning("%s did not take the abort: %s", url, error)
        try:
            left = num_requests_from_load(await get(f"{url}/v1/loads?include=core"))
        except Exception as error:
            logger.warning("%s does not say what it is doing: %s", url, error)
            return
        if left <= 0:
            return
        calls += 1
        logger.info("%s has %d requests behind abort %d; again in %g s", url, left, calls, retry_interval)
        await asyncio.sleep(retry_interval)


async def abort_servers_until_idle(urls: List[str]) -> None:
    await asyncio.gather(*map(abort_server_until_idle, urls))

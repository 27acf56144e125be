"""Slow starts of servers, relays and dialers, in a thread."""

import asyncio
import errno
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from mitmproxy_watm.updates import Updates

NO_SUCH_FAMILY = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT}
"""Errors of an address after which the next one is tried."""


class Closable(Protocol):
    """An object that must be closed if its caller was cancelled."""

    def close(self) -> None: ...


Started = TypeVar("Started", bound=Closable)


async def in_thread(start: Callable[[], Started], followed: Updates | None = None) -> Started:
    """Runs `start` in a thread and returns its result.

    If the caller is cancelled, the result is closed once it exists. On failure the search for newer
    modules ends as well.
    """
    starting = asyncio.get_running_loop().run_in_executor(None, start)
    try:
        return await asyncio.shield(starting)
    except BaseException as e:
        if isinstance(e, asyncio.CancelledError):
            starting.add_done_callback(_close_unwanted)
        if followed is not None:
            followed.close()
        raise


def at_first(addresses: Iterable[str], start: Callable[[str], Started]) -> Started:
    """Calls `start` with the first of these addresses whose family the machine supports.

    Raises the error of the first address.
    """
    error: OSError | None = None
    for address in addresses:
        try:
            return start(address)
        except OSError as e:
            error = error or e
            if e.errno not in NO_SUCH_FAMILY:
                break
    assert error is not None  # the list has at least one address
    raise error


def _close_unwanted(starting: asyncio.Future[Started]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().close()

"""Delivers events of native threads to an event loop: one wake-up a batch."""

import asyncio
import logging
import selectors
import threading
from collections.abc import Callable
from weakref import WeakKeyDictionary

from mitmproxy_watm import _native
from mitmproxy_watm._logs import write_logs

logger = logging.getLogger(__name__)


class LoopWake:
    """The waiters and callbacks of one event loop, by key."""

    def __init__(self) -> None:
        self.native = _native.Wake()
        self.waiters: dict[int, asyncio.Future[None]] = {}
        """Futures to resolve once when their key is ready."""
        self.callbacks: dict[int, Callable[[], None]] = {self.native.log_key: write_logs}
        """Callbacks to call each time a key is ready."""

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> "LoopWake":
        """Returns the object that belongs to `loop`."""
        wake = _wakes.get(loop)
        if wake is None:
            wake = _wakes[loop] = LoopWake()
            try:
                loop.add_reader(wake.native.fileno(), wake.deliver)
            except NotImplementedError:
                _watch_from_a_thread(loop, wake)
        return wake

    def deliver(self) -> None:
        """Resolve the waiters of ready keys, and call their callbacks."""
        for key in self.native.take():
            waiter = self.waiters.pop(key, None)
            if waiter is not None:
                if not waiter.done():
                    waiter.set_result(None)
                continue
            callback = self.callbacks.get(key)
            if callback is not None:
                try:
                    callback()
                except Exception:
                    logger.exception("a callback failed")


_wakes: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWake] = WeakKeyDictionary()


LOOK = 1
"""The interval in seconds at which a thread checks whether its loop is closed."""


def _watch_from_a_thread(loop: asyncio.AbstractEventLoop, wake: LoopWake) -> None:
    """Watch from a thread, for a loop that cannot watch descriptors, such as Windows'
    ProactorEventLoop."""
    delivered = threading.Event()

    def deliver() -> None:
        wake.deliver()
        delivered.set()

    def watch() -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(wake.native.fileno(), selectors.EVENT_READ)
            while not loop.is_closed():
                if not selector.select(timeout=LOOK):
                    continue
                delivered.clear()
                try:
                    loop.call_soon_threadsafe(deliver)
                except RuntimeError:
                    return  # the loop is closed
                while not delivered.wait(timeout=LOOK) and not loop.is_closed():
                    pass

    threading.Thread(target=watch, name="watm wake", daemon=True).start()

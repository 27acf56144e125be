"""Delivers events of native threads to an event loop: one wake-up a batch."""

import asyncio
import logging
import selectors
import threading
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

from mitmproxy_watm import _native
from mitmproxy_watm._logs import write_logs

logger = logging.getLogger(__name__)


BATCH = 32
"""The most keys delivered before other work of the event loop gets its turn."""


class LoopWake:
    """The waiters and callbacks of one event loop, by key."""

    def __init__(self) -> None:
        self.native = _native.Wake()
        self.waiters: dict[int, asyncio.Future[None]] = {}
        """Futures to resolve once when their key is ready."""
        self.callbacks: dict[int, Callable[[], None]] = {self.native.log_key: write_logs}
        """Callbacks to call each time a key is ready."""
        self._ready: deque[int] = deque()
        """Keys that are taken and not delivered."""

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
        # Otherwise `_deliver_batch` is about to be called.
        if not self._ready:
            self._deliver_batch()

    def _deliver_batch(self) -> None:
        self._ready = self._ready or deque(self.native.take())
        for _ in range(min(BATCH, len(self._ready))):
            self._deliver_one(self._ready.popleft())
        if self._ready:
            asyncio.get_running_loop().call_soon(self._deliver_batch)

    def _deliver_one(self, key: int) -> None:
        waiter = self.waiters.pop(key, None)
        if waiter is not None:
            if not waiter.done():
                waiter.set_result(None)
            return
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

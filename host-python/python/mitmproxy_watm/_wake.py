"""Delivers events of native threads to an event loop: one wake-up a batch."""

import asyncio
import logging
import selectors
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator
from contextvars import Context
from weakref import WeakKeyDictionary

from mitmproxy_watm import _native
from mitmproxy_watm._logs import write_logs

logger = logging.getLogger(__name__)


BATCH = 32
"""The most keys delivered before other work of the event loop gets its turn."""


class LoopWake:
    """The tasks that wait in one event loop, and callbacks, by key."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.native = _native.Wake()
        self.callbacks: dict[int, Callable[[], None]] = {self.native.log_key: write_logs}
        """Callbacks to call each time a key is ready."""
        self._loop = weakref.ref(loop)
        self._waiters: dict[int, Waiter] = {}
        """The first task that waits for a key, with the next ones."""
        self._ready: deque[int] = deque()
        """Keys that are taken and not delivered."""

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> "LoopWake":
        """Returns the object that belongs to `loop`."""
        wake = _wakes.get(loop)
        if wake is None:
            wake = _wakes[loop] = LoopWake(loop)
            try:
                loop.add_reader(wake.native.fileno(), wake.deliver)
            except NotImplementedError:
                _watch_from_a_thread(loop, wake)
        return wake

    def wait(self, key: int) -> "Waiter":
        """Returns an awaitable that ends when a key is ready. Any number of tasks may wait. Check the reason
        afterwards, and wait again if it is not given."""
        return Waiter(self, key)

    def wake(self, key: int) -> None:
        """Wakes the tasks that wait for a key, in the next round of the loop."""
        if key in self._waiters:
            self.loop().call_soon(self._deliver_one, key)

    def loop(self) -> asyncio.AbstractEventLoop:
        """Returns the loop that this object belongs to."""
        loop = self._loop()
        if loop is None:
            raise RuntimeError("the event loop is gone")
        return loop

    def deliver(self) -> None:
        """Continue the tasks that wait for ready keys, and call their callbacks."""
        # Otherwise `_deliver_batch` is about to be called.
        if not self._ready:
            self._deliver_batch()

    def _deliver_batch(self) -> None:
        self._ready = self._ready or deque(self.native.take())
        try:
            for _ in range(min(BATCH, len(self._ready))):
                self._deliver_one(self._ready.popleft())
        finally:
            # Also after a KeyboardInterrupt in a task, which ends this call.
            if self._ready:
                asyncio.get_running_loop().call_soon(self._deliver_batch)

    def _deliver_one(self, key: int) -> None:
        waiter = self._waiters.pop(key, None)
        if waiter is not None:
            # Several tasks seldom wait for one key. An interrupt in the first delays none of the others.
            other = waiter.next
            while other is not None:
                self.loop().call_soon(other.wake)
                other = other.next
            waiter.wake()
            return
        callback = self.callbacks.get(key)
        if callback is not None:
            try:
                callback()
            except Exception:
                logger.exception("a callback failed")

    def add(self, waiter: "Waiter") -> None:
        """Takes a task that waits, behind those that wait for the same key."""
        last = self._waiters.setdefault(waiter.key, waiter)
        while last is not waiter:
            if last.next is None:
                last.next = waiter
            last = last.next

    def forget(self, waiter: "Waiter") -> None:
        """Forgets a task that no longer waits."""
        one = self._waiters.pop(waiter.key, None)
        while one is not None:
            one.next, following = None, one.next
            if one is not waiter:
                self.add(one)
            one = following


class Waiter:
    """A future for one task, which continues inside `wake`.

    With a future of asyncio's, a task continues in the next round of the event loop, which costs a system call and
    a tenth of the time of an echo. A task waits for any object that looks like a future (`asyncio.isfuture`). Idle
    flows have one each, so it is its own iterator, and needs no frame.
    """

    __slots__ = ("_asyncio_future_blocking", "_cancelled", "_context", "_step", "_wake", "key", "next")

    def __init__(self, wake: LoopWake, key: int) -> None:
        # The task sets this to False when it begins to wait.
        self._asyncio_future_blocking = True
        self._wake = wake
        self._step: Callable[[Waiter], object] | None = None
        self._context: Context | None = None
        self._cancelled = False
        self.key = key
        self.next: Waiter | None = None

    def __await__(self) -> Generator["Waiter", None, None]:
        return self  # type: ignore[return-value]

    def __next__(self) -> "Waiter":
        if self._asyncio_future_blocking:
            return self
        raise StopIteration

    def wake(self) -> None:
        """Continues the task, unless it was cancelled. Only the event loop may call it, outside of any task."""
        step, self._step = self._step, None
        if step is not None and self._context is not None:
            self._context.run(step, self)

    # The task calls these.

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Returns the loop that the task must run in."""
        return self._wake.loop()

    def add_done_callback(self, step: Callable[["Waiter"], object], *, context: Context) -> None:
        """Takes the function that continues the task."""
        self._step, self._context = step, context
        self._wake.add(self)

    def cancel(self, msg: object = None) -> bool:
        """Ends the wait with a `CancelledError`, in the next round of the loop. Returns False if it has ended."""
        step, self._step = self._step, None
        if step is None:
            return False
        self._cancelled = True
        self._wake.forget(self)
        self._wake.loop().call_soon(step, self, context=self._context)
        return True

    def result(self) -> None:
        """Raises `CancelledError` after `cancel`."""
        if self._cancelled:
            raise asyncio.CancelledError


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

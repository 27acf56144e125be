"""The stream that handlers read from and write to."""

import asyncio
import errno
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from mitmproxy_watm import _native
from mitmproxy_watm._wake import LoopWake

CHUNK = 65536
"""The bytes to request from a flow if the caller sets no bound."""

READS_AT_ONCE = 16
"""The most reads that return without a wait before other work of the event loop gets its turn. A module may supply data
faster than its reader takes it."""

LIMIT = 65536
"""The longest line, in bytes, that `readuntil` and `readline` look for; asyncio's default."""


@dataclass
class Origin:
    """State shared by all streams of one server. A dialed connection has its own."""

    loop: asyncio.AbstractEventLoop
    wake: LoopWake
    closed: bool = False
    """True once the server is closed."""


class Stream:
    """One connection: `asyncio.StreamReader` and `asyncio.StreamWriter` in one object.

    If the connection is a UDP flow, each `read` returns one datagram, whole, and each `write` sends
    one.

    A stream is closed when nothing refers to it.
    """

    def __init__(self, flow: _native.Flow, origin: Origin) -> None:
        """Called by `Server`, which passes streams to its handlers."""
        self._flow = flow
        self._origin = origin
        self._buffer = bytearray()
        self._eof = False
        self._reading = False
        self._reads_at_once = 0
        self._closed = False
        self._write_closed = False

    # Reading.

    async def read(self, n: int = -1) -> bytes:
        """Return up to `n` bytes, as soon as there is one; with -1, everything up to the end.

        For a UDP flow: one datagram, whole, whatever `n` is. Returns `b""` at the end of the
        stream, repeatedly, and after `close`; for a UDP flow, an empty datagram too: see `at_eof`.

        Raises `ConnectionResetError` if the other end aborted, and `RuntimeError` if another task
        is reading.
        """
        if self._reading:
            raise _second_read("read")
        if n < 0 and not self._flow.datagrams:
            return await self._read_to_end()
        if n == 0 and not self._flow.datagrams:
            return b""
        if self._buffer:
            return self._take(n)
        data = self._read_at_once(n)
        return data if data is not None else await self._read_later(n)

    async def readexactly(self, n: int) -> bytes:
        """Return exactly `n` bytes. `asyncio.IncompleteReadError` has the bytes before an early end."""
        if n < 0:
            raise ValueError("readexactly size can not be less than zero")
        while len(self._buffer) < n:
            if not await self._fill("readexactly"):
                partial = self._take(len(self._buffer))
                raise asyncio.IncompleteReadError(partial, n)
        return self._take(n)

    async def readuntil(self, separator: bytes = b"\n") -> bytes:
        """Return everything up to and including `separator`.

        Raises `asyncio.IncompleteReadError` with the bytes before an early end, and
        `asyncio.LimitOverrunError` if there is no separator in the first `LIMIT` bytes, which then
        stay in the buffer.
        """
        if not separator:
            raise ValueError("Separator should be at least one-byte string")
        searched = 0
        while True:
            found = self._buffer.find(separator, searched)
            if found >= 0:
                if found > LIMIT:
                    raise asyncio.LimitOverrunError("Separator is found, but chunk is longer than limit", found)
                return self._take(found + len(separator))
            searched = max(0, len(self._buffer) + 1 - len(separator))
            if searched > LIMIT:
                raise asyncio.LimitOverrunError("Separator is not found, and chunk exceed the limit", searched)
            if not await self._fill("readuntil"):
                raise asyncio.IncompleteReadError(self._take(len(self._buffer)), None)

    async def readline(self) -> bytes:
        """Return a line with its `\\n`; the last one may lack it. `ValueError` if it exceeds `LIMIT`."""
        try:
            return await self.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            return error.partial
        except asyncio.LimitOverrunError as error:
            # As in asyncio, the searched bytes are dropped, so that the next call continues after
            # them.
            if self._buffer.startswith(b"\n", error.consumed):
                del self._buffer[: error.consumed + 1]
            else:
                self._buffer.clear()
            raise ValueError(error.args[0]) from None

    def at_eof(self) -> bool:
        """Returns True if the stream has ended and everything has been read."""
        if self._buffer:
            return False
        if not self._eof and not self._closed and not self._reading and not self._flow.datagrams:
            try:
                self._buffer += self._read_now(CHUNK) or b""
            except OSError:
                return False  # for the next read to raise
            return self._eof and not self._buffer
        return self._eof or self._closed

    def __aiter__(self) -> Self:
        """Iterates over the stream's lines."""
        return self

    async def __anext__(self) -> bytes:
        line = await self.readline()
        if not line:
            raise StopAsyncIteration
        return line

    def _read_now(self, n: int) -> bytes | None:
        """Returns the bytes that are available; None if there are none."""
        if self._closed or self._eof:
            return b""
        try:
            # The number does not matter for datagrams.
            data = self._flow.read(max(n, 0))
        except OSError:
            if self._origin.closed:
                self._eof = True
                return b""
            raise
        if data is not None and not data:
            self._eof = self._flow.ended
        return data

    def _read_at_once(self, n: int) -> bytes | None:
        """Returns the bytes that are available; None if there are none, or other work has its turn."""
        self._reads_at_once += 1
        return self._read_now(n) if self._reads_at_once <= READS_AT_ONCE else None

    async def _read_later(self, n: int) -> bytes:
        """Reads after `_read_at_once` has returned None."""
        # Bytes are taken from the flow only when they are returned in the same step, so a task
        # cancelled here loses none.
        others = self._reads_at_once > READS_AT_ONCE
        self._reading = True
        self._reads_at_once = 0
        data = None
        try:
            if others:
                await asyncio.sleep(0)
                data = self._read_now(n)
            while data is None:
                await self._origin.wake.wait(self._flow.read_key)
                data = self._read_now(n)
            return data
        finally:
            self._reading = False

    async def _fill(self, caller: str) -> bool:
        """Adds the next bytes to the buffer. Returns False at the end."""
        if self._reading:
            raise _second_read(caller)
        data = self._read_at_once(CHUNK)
        if data is None:
            data = await self._read_later(CHUNK)
        self._buffer += data
        return bool(data) or not (self._eof or self._closed)

    async def _read_to_end(self) -> bytes:
        while await self._fill("read"):
            pass
        return self._take(len(self._buffer))

    def _take(self, n: int) -> bytes:
        data = bytes(self._buffer[:n])
        del self._buffer[:n]
        return data

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue bytes, or one datagram, and return at once; follow it with `await drain()`.

        Raises `BrokenPipeError` after `write_eof` or `close`. As in asyncio, bytes written after
        the other end has aborted are dropped: `drain` and `read` raise the error.
        """
        if type(data) is not bytes:
            data = bytes(memoryview(data))
        if self._origin.closed:
            raise OSError("Server has been shut down.")
        if self._write_closed:
            raise BrokenPipeError(errno.EPIPE, "connection closed")
        try:
            self._flow.write(data)
        except (ConnectionResetError, ConnectionAbortedError):
            pass

    def writelines(self, data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Queue several pieces, each as `write` does."""
        if self._flow.datagrams:
            for datagram in data:
                self.write(datagram)
        else:
            self.write(b"".join(data))

    async def drain(self) -> None:
        """Wait until there is room for more; returns at once if there is.

        Any number of tasks may wait. Raises `ConnectionResetError` if the connection has failed and
        was not closed here.
        """
        while not (self._closed or self._origin.closed or self._flow.drained()):
            await self._origin.wake.wait(self._flow.drain_key)

    def can_write_eof(self) -> bool:
        """Returns True if the connection can be half-closed: TCP can, UDP cannot."""
        return not self._flow.datagrams

    def write_eof(self) -> None:
        """Half-close the connection after the queued bytes; reading continues.

        Has no effect again, or after `close`. For a UDP flow it only ends writing here.
        """
        if self._write_closed:
            return
        self._write_closed = True
        if not self._flow.datagrams:
            try:
                self._flow.write_eof()
            except (ConnectionResetError, ConnectionAbortedError):
                pass

    def close(self) -> None:
        """Close both directions; queued data is still delivered. Repeated calls have no effect.

        A pending `read` returns `b""`.
        """
        if self._closed:
            return
        self._flow.close()
        self._end()

    def abort(self) -> None:
        """Reset the connection and lose queued data. Repeated calls have no effect."""
        self._flow.abort()
        self._end()

    def is_closing(self) -> bool:
        """Returns True if either end has closed the connection or is closing it."""
        if self._closed or self._origin.closed:
            return True
        try:
            self._flow.drained()
        except OSError:
            return True
        return False

    async def wait_closed(self) -> None:
        """Wait until everything queued before `close` has been sent, or the connection has failed."""
        while not (self._origin.closed or self._flow.flushed()):
            await self._origin.wake.wait(self._flow.drain_key)

    def _end(self) -> None:
        self._closed = self._write_closed = True
        self._buffer.clear()
        for key in (self._flow.read_key, self._flow.drain_key):
            self._origin.wake.wake(key)

    # Facts.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a fact about the connection, or `default`.

        - `transport_protocol`: "tcp" or "udp"
        - `peername`, `sockname`: source and destination inside the tunnel, as (host, port); for a
          dialed connection: the other end's address and this one's
        - `original_src`, `original_dst`: the addresses of the tunnel itself: the client's source,
          and the address at which the server received it
        - `peer`: the identity that the transport authenticated, for WireGuard the public key
        - `attributes`: other facts that the transport knows, by name
        """
        value = self._flow.extra_info(name)
        return default if value is None else value

    def __repr__(self) -> str:
        protocol, source, destination = map(self.get_extra_info, ("transport_protocol", "peername", "sockname"))
        state = " closing" if self.is_closing() else ""
        return f"<{type(self).__name__} {protocol} {source} -> {destination}{state}>"


def _second_read(caller: str) -> RuntimeError:
    return RuntimeError(f"{caller}() called while another coroutine is already waiting for incoming data")

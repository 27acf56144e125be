"""Modules that supply flows and data without end leave the event loop time for other work."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import mitmproxy_watm
from mitmproxy_watm._wake import BATCH
from mitmproxy_watm.server import ACCEPT_BATCH
from mitmproxy_watm.stream import READS_AT_ONCE
from watm_test_support import module_files
from watm_test_support.tunnels import HOST

from .neighbour import until


class Senders:
    """Senders of datagrams to a guest, which opens a flow for each."""

    def __init__(self, server: mitmproxy_watm.Server, sockets: list[socket.socket]) -> None:
        self.server = server
        self._sockets = sockets

    def send(self, data: bytes) -> None:
        """Sends a datagram of each sender."""
        for sender in self._sockets:
            sender.sendto(data, self.server.getsockname())


@contextlib.asynccontextmanager
async def senders(number: int, handle: Callable[[mitmproxy_watm.Stream], Any]) -> AsyncIterator[Senders]:
    """Runs a guest, whose flows the handler gets, and this number of senders."""
    with contextlib.ExitStack() as sockets:
        made = [sockets.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(number)]
        async with await mitmproxy_watm.start_server(
            module_files.GUEST, HOST, 0, handle_udp_stream=handle, unsealed=True
        ) as server:
            yield Senders(server, made)


class Turns:
    """Counts the rounds of the event loop."""

    def __init__(self) -> None:
        self.number = 0
        self._counting = asyncio.ensure_future(self._count())

    async def _count(self) -> None:
        while True:
            self.number += 1
            await asyncio.sleep(0)

    def end(self) -> None:
        self._counting.cancel()


async def test_reads_that_need_no_wait() -> None:
    streams: list[mitmproxy_watm.Stream] = []
    async with senders(1, streams.append) as sender:
        for _ in range(100):
            sender.send(b"data")
        await until("all", lambda: streams and sender.server.stats()["host.datagrams_received"] == 100)
        turns = Turns()
        for _ in range(4 * READS_AT_ONCE):
            assert await streams[0].read(100) == b"data"
        turns.end()
        assert turns.number >= 3
        streams[0].close()


async def test_readers_that_wake_at_once() -> None:
    waiting, woken = [], []
    turns = Turns()

    async def handle(stream: mitmproxy_watm.Stream) -> None:
        waiting.append(await stream.read(100))
        await stream.read(100)
        woken.append(turns.number)

    flows = 4 * BATCH
    async with senders(flows, handle) as several:
        several.send(b"first")
        await until("all", lambda: len(waiting) == flows)
        several.send(b"second")
        # The loop stands still until all are ready.
        time.sleep(1)
        await until("all", lambda: len(woken) == flows)
    turns.end()
    assert max(map(woken.count, woken)) <= BATCH


async def test_flows_that_take_long_to_handle() -> None:
    begun = []
    turns = Turns()

    async def handle(_: mitmproxy_watm.Stream) -> None:
        time.sleep(0.01)
        begun.append(turns.number)

    async with senders(8 * ACCEPT_BATCH, handle) as several:
        several.send(b"first")
        # The loop stands still until many wait.
        time.sleep(1)
        await until("most", lambda: len(begun) >= 6 * ACCEPT_BATCH)
    turns.end()
    # The first rounds show how long a flow takes.
    late = begun[4 * ACCEPT_BATCH :]
    assert max(map(late.count, late)) <= 4

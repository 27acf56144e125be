"""Swaps of the module while a client continues."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from .methods import LIBEV, RUST_2022
from .ours import COMPONENT, config, proxy
from .peers import HOST, LIMIT, cases
from .services import Association, echo


class Recorder(asyncio.DatagramProtocol):
    """A relay of one client's datagrams that records them."""

    def __init__(self, to: int) -> None:
        self.sent: list[bytes] = []
        self._to = (HOST, to)
        self._client: tuple[str, int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if addr == self._to:
            self._transport.sendto(data, self._client)
        else:
            self._client = addr
            self.sent.append(data)
            self._transport.sendto(data, self._to)

    def repeat(self) -> None:
        """Replays all recorded datagrams."""
        for datagram in self.sent:
            self._transport.sendto(datagram, self._to)


@contextlib.asynccontextmanager
async def recorder(to: int) -> AsyncIterator[tuple[int, Recorder]]:
    """Runs a relay in front of this port. Yields it with its own port."""
    loop = asyncio.get_running_loop()
    transport, recorder = await loop.create_datagram_endpoint(lambda: Recorder(to), local_addr=(HOST, 0))
    try:
        yield transport.get_extra_info("sockname")[1], recorder
    finally:
        transport.close()


@pytest.mark.parametrize(("peer", "method"), cases([LIBEV[1], LIBEV[3]], [RUST_2022[0], RUST_2022[2]]))
async def test_datagrams_go_on_and_are_not_taken_twice(peer, method, tmp_path) -> None:
    async with (
        echo() as port,
        proxy(config(method)) as server,
        recorder(server.port) as (path, recorded),
        peer.client(tmp_path, method, path) as socks,
        Association.through(socks) as client,
    ):
        assert await client.ask(port, b"before") == b"before"
        await server.server.swap(COMPONENT, probation=0.1, unsealed=True)
        repeated = len(recorded.sent)
        recorded.repeat()
        async with asyncio.timeout(LIMIT):
            while server.counter("datagrams.replays") < repeated:
                await asyncio.sleep(0.02)
        assert len(server.seen) == 1
        # The same association.
        for datagram in (b"after", b"again"):
            assert await client.ask(port, datagram) == datagram
        assert len(server.seen) == 2
        assert server.seen[0]["sockname"] == server.seen[1]["sockname"] == (HOST, port)

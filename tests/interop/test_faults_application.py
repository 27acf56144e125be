"""Handlers of a careless application: their faults cost their own flow, and no other."""

import asyncio
import logging

import pytest

from watm_test_support import careless
from watm_test_support.careless import (
    CLOSES_EARLY,
    MB,
    NEVER_DRAINS,
    NEVER_READS,
    RAISES,
    RAISES_LATER,
    RETURNS,
    UNDRAINED,
)
from watm_test_support.tunnels import V4, Peer, serving
from watm_test_support.wgclient import WgClientError, WgClientTimeout

from .neighbour import counted, undisturbed, until


def two_peers() -> tuple[Peer, Peer]:
    return Peer(), Peer(addresses=("10.0.2.1",))


async def test_an_exception_resets_its_own_flow_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    neighbour, peer = two_peers()
    async with serving(neighbour, peer, handle_tcp=careless.handle_tcp, handle_udp=careless.handle_udp) as running:
        async with undisturbed(running, neighbour) as others, running.client(peer) as client:
            async with client.tcp(f"{V4}:7") as kept:
                for port in (RAISES, RAISES_LATER):
                    for _ in range(10):
                        async with client.tcp(f"{V4}:{port}") as conn:
                            with pytest.raises(WgClientError, match="reset"):
                                await conn.write(b"0123456789")
                                await conn.read()
                    async with client.udp(f"{V4}:{port}") as datagrams:
                        await datagrams.write(b"0123456789")
                await others.more()
                await kept.write(b"here")
                assert await kept.read_exactly(4) == b"here"
            await until("all logged", lambda: len(_failures(caplog)) == 22)
        assert running.server.stats()["host.restarts"] == 0
    assert all(record.exc_info for record in _failures(caplog))


async def test_a_handler_that_never_reads_holds_its_sender_back_and_nobody_else() -> None:
    neighbour, peer = two_peers()
    async with serving(neighbour, peer, handle_tcp=careless.handle_tcp, handle_udp=careless.handle_udp) as running:
        async with undisturbed(running, neighbour) as others, running.client(peer) as client:

            async def send() -> None:
                async with client.tcp(f"{V4}:{NEVER_READS}") as conn:
                    with pytest.raises(WgClientTimeout):
                        await conn.write(bytes(8 * MB), timeout=3)
                    await conn.abort()

            async with client.udp(f"{V4}:{NEVER_READS}") as datagrams, asyncio.TaskGroup() as group:
                for _ in range(20):
                    group.create_task(send())
                # The queue to the handler holds 256. The rest is dropped.
                for _ in range(2000):
                    await datagrams.write(bytes(1000))
                await until("datagrams are dropped", lambda: counted(running, "netstack.udp_dropped") > 1000)
                await client.do("echo", messages=20)
                await others.more()
        assert running.server.stats()["host.restarts"] == 0


@pytest.mark.parametrize("port", [CLOSES_EARLY, RETURNS])
async def test_a_handler_that_closes_early_ends_its_own_flow(port: int) -> None:
    neighbour, peer = two_peers()
    async with serving(neighbour, peer, handle_tcp=careless.handle_tcp, handle_udp=careless.handle_udp) as running:
        async with undisturbed(running, neighbour) as others, running.client(peer) as client:
            for _ in range(5):
                async with client.tcp(f"{V4}:{port}") as conn, client.udp(f"{V4}:{port}") as datagrams:
                    await datagrams.write(b"0123456789")
                    await conn.write(b"0123456789")
                    # The end comes at once, and later data is discarded.
                    assert await conn.read_all() == b""
                    await conn.write(bytes(MB))
            await others.more()
            await client.do("echo", messages=20)
        # No flow stays except the UDP flows, until their idle timeout.
        await until("the connections are gone", lambda: running.server.status().flows < 20)


async def test_a_handler_that_never_drains_is_sent_to_its_end() -> None:
    neighbour, peer = two_peers()
    async with serving(neighbour, peer, handle_tcp=careless.handle_tcp, handle_udp=careless.handle_udp) as running:
        async with undisturbed(running, neighbour), running.client(peer) as client:
            async with client.tcp(f"{V4}:{NEVER_DRAINS}") as conn:
                assert await conn.read_all(timeout=20) == bytes(UNDRAINED)


def _failures(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]

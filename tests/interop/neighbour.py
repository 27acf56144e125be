"""The traffic of another peer, which must continue during an attack on the server."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from watm_test_support.tunnels import Running
from watm_test_support.wgclient import WgClient

# Seconds for one round, which takes some hundredths on an idle machine. The attack may cost the
# server its share of one CPU, and no more.
STALL = 5
_ROUND = 1_000_000


@dataclass
class Neighbour:
    """The number of completed rounds, all with the right content."""

    client: WgClient
    rounds: int = 0
    slowest: float = 0
    """Seconds of the slowest round."""

    async def more(self, rounds: int = 2) -> None:
        """Waits for this many rounds that begin after the call."""
        until = self.rounds + rounds + 1
        while self.rounds < until:
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def undisturbed(running: Running, peer) -> AsyncIterator[Neighbour]:
    """Repeats transfers in both directions and echoes for the length of the block.

    Fails if one stalls, ends early or has wrong content, or if no round completes.
    """
    async with running.client(peer) as client, asyncio.TaskGroup() as group:
        await client.do("echo", messages=1)
        neighbour = Neighbour(client)
        rounds = group.create_task(_rounds(neighbour))
        yield neighbour
        await asyncio.wait_for(neighbour.more(1), 2 * STALL)
        rounds.cancel()
    assert neighbour.slowest < STALL


async def _rounds(neighbour: Neighbour) -> None:
    do = neighbour.client.do
    while True:
        began = time.monotonic()
        await asyncio.gather(
            do("bulk-up", bytes=_ROUND, timeout=STALL),
            do("bulk-down", bytes=_ROUND, timeout=STALL),
            do("echo", messages=20, timeout=STALL),
            do("udp-echo", messages=20, timeout=STALL),
        )
        neighbour.slowest = max(neighbour.slowest, time.monotonic() - began)
        neighbour.rounds += 1


async def until(what: str, condition: Callable[[], object], seconds: float = 10) -> None:
    """Waits until a condition about the server holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)


def counted(running: Running, name: str) -> int:
    """Returns a counter of the server by its exact name."""
    return running.server.stats()[name]

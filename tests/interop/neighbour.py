"""Another peer's traffic, which has to go on whatever is done to the server meanwhile."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from watm_test_support.tunnels import Running
from watm_test_support.wgclient import WgClient

# Seconds for one round, which takes some hundredths on an idle machine. What the server does
# about the others may cost its share of one CPU, and no more.
STALL = 5
_ROUND = 1_000_000


@dataclass
class Neighbour:
    """The count of rounds that have come through, all of them with the right content."""

    client: WgClient
    rounds: int = 0
    slowest: float = 0
    """Seconds of the slowest round."""

    async def more(self, rounds: int = 2) -> None:
        """Waits for more rounds that have begun from now on."""
        until = self.rounds + rounds + 1
        while self.rounds < until:
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def undisturbed(running: Running, peer) -> AsyncIterator[Neighbour]:
    """Transfers in both directions and echoes for the length of the block, over and over.

    Fails when one stalls, ends early or has another content; and when the block was over
    before anything came through.
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
    """Waits for something that the server is about to do."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)


def counted(running: Running, name: str) -> int:
    """One of the server's counters, by its exact name."""
    return running.server.stats()[name]

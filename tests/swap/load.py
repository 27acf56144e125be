"""The traffic of a tunnel during swaps, with the longest stall of each kind."""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field

from watm_test_support.wgclient import WgClient

DOWNLOAD, SHELL, ECHO, HTTP = 4100, 4200, 7, 80
"""Ports inside the tunnel."""

PERIOD = 0.02
"""Seconds between two requests, and between two datagrams: fifty a second."""

SHELL_PERIOD = 5.0
"""Seconds between two lines of a user who mostly reads."""

PIECE = 32768
PATIENCE = 10.0

_BLOCK = bytes(range(256)) * (PIECE // 256)


@dataclass
class Part:
    """The outcome of one kind of traffic."""

    done: int = 0
    lost: int = 0
    errors: list[str] = field(default_factory=list)
    stall: float = 0.0
    """The longest time without progress, in seconds."""
    last: float = field(default_factory=time.monotonic)

    def progress(self, *, since: float | None = None) -> None:
        """Records an arrival, and the time since the wait for it began, by default since the last arrival."""
        now = time.monotonic()
        self.stall = max(self.stall, now - (self.last if since is None else since))
        self.last, self.done = now, self.done + 1


async def serve(stream) -> None:
    """Runs the inner ends of the download and of the shell."""
    port = stream.get_extra_info("sockname")[1]
    if port == DOWNLOAD:
        await stream.readexactly(1)
        with contextlib.suppress(ConnectionResetError):  # the client ends it this way
            while True:
                stream.write(_BLOCK)
                await stream.drain()
        return
    while line := await stream.read(1000):
        stream.write(line)
        await stream.drain()


async def download(client: WgClient, to: str, until: asyncio.Event) -> Part:
    """Downloads as fast as the tunnel allows, and checks every byte."""
    part = Part()
    async with client.tcp(f"{to}:{DOWNLOAD}") as conn:
        await conn.write(b"g")
        part.last = time.monotonic()
        while not until.is_set():
            piece = await conn.read_exactly(PIECE, timeout=PATIENCE)
            if piece != _BLOCK:
                part.errors.append(f"piece {part.done} is not what was sent")
                break
            part.progress()
        await conn.abort()
    return part


async def shell(client: WgClient, to: str, until: asyncio.Event) -> Part:
    """Runs a connection that is idle for most of the time."""
    part = Part()
    async with client.tcp(f"{to}:{SHELL}") as conn:
        ended = False
        while not ended:
            ended = until.is_set()
            line, begin = b"line %d" % part.done, time.monotonic()
            await conn.write(line)
            if await conn.read_exactly(len(line), timeout=PATIENCE) != line:
                part.errors.append(f"line {part.done} came back as another")
            part.progress(since=begin)
            if not ended:
                await _wait(until, SHELL_PERIOD)
    return part


async def requests(client: WgClient, to: str, until: asyncio.Event) -> Part:
    """Sends short HTTP requests at fixed times, each on a connection of its own."""
    part = Part()

    async def one() -> None:
        begin = time.monotonic()
        try:
            answer = await client.do("http", url=f"http://{to}:{HTTP}/", timeout=PATIENCE)
        except Exception as e:  # failures are counted and reported at the end
            part.errors.append(f"request: {e}")
            return
        if answer["status"] != 200:
            part.errors.append(f"request: status {answer['status']}")
        part.progress(since=begin)

    async with asyncio.TaskGroup() as group:
        while not until.is_set():
            group.create_task(one())
            await asyncio.sleep(PERIOD)
    return part


async def echoes(client: WgClient, to: str, until: asyncio.Event) -> Part:
    """Sends numbered datagrams on one flow."""
    part = Part()
    async with client.udp(f"{to}:{ECHO}") as conn:
        sent = 0
        seen: set[bytes] = set()

        async def hear() -> None:
            while True:
                datagram = await conn.read(timeout=PATIENCE)
                part.progress()
                if datagram in seen:
                    part.errors.append(f"{datagram!r} came twice")
                seen.add(datagram)

        part.last = time.monotonic()
        hearing = asyncio.create_task(hear())
        while not until.is_set():
            await conn.write(b"%d" % sent)
            sent += 1
            await asyncio.sleep(PERIOD)
        await asyncio.sleep(0.5)
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)
        part.lost = sent - len(seen)
    return part


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        pass

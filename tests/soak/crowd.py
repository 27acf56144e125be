"""Clients of the server: well-behaved ones with different habits, careless ones, and strangers."""

import asyncio
import contextlib
import random
import socket
from collections import Counter

from watm_test_support import careless, module_files, outer
from watm_test_support.tunnels import HOST, V4, V6, Peer
from watm_test_support.wgclient import WgClient, WgClientError

MB = 1_000_000
# The time limit of an action, which takes less than a second.
PATIENCE = 30
# Seconds between two actions of a client, as in a busy network.
PAUSE = 0.05
# Seconds in which wireguard-go begins no second handshake, with a margin.
REKEY = 5.5

ACTIONS = [
    ("bulk-up", 9, {"bytes": 2 * MB}),
    ("bulk-down", 19, {"bytes": 2 * MB}),
    ("bulk-up", 9, {"bytes": MB, "connections": 3}),
    ("bulk-down", 19, {"bytes": MB, "connections": 3}),
    ("echo", 7, {"messages": 100}),
    ("echo", 7, {"messages": 5, "size": 100_000, "connections": 4}),
    ("connect", 7, {"count": 50, "parallel": 5}),
    ("udp-echo", 7, {"messages": 100, "size": 1200, "window": 8}),
    ("udp-echo", 7, {"messages": 5, "size": 20_000}),
    ("halfclose", 7, {"size": 50_000}),
    ("ping", None, {"count": 3}),
]
FAILURES = ["!trap", "!foreign", "!eat", "!spin"]


class Tally:
    """The outcomes of the clients' actions."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.lost = 0
        """The number of datagrams and pings without an answer, which is no error."""
        self.errors: list[str] = []
        """Errors of well-behaved clients: wrong content, timeouts, resets."""

    async def do(self, client: WgClient, action: str, **parameters) -> None:
        """Performs an action that must succeed."""
        try:
            answer = await client.do(action, timeout=PATIENCE, **parameters)
        except WgClientError as error:
            self.errors.append(f"{action} {parameters}: {error}")
            return
        self.done[action] += 1
        self.lost += answer.get("lost", 0)


class Crowd:
    """Runs all clients. `peers` has a peer for each of `HABITS`."""

    HABITS = ("steady", "roaming", "leaving", "careless")

    def __init__(self, server: int, guest: int, public_key: str, peers: list[Peer], seed: int) -> None:
        self.tally = Tally()
        self._server = server
        self._guest = guest
        self._public_key = public_key
        self._peers = dict(zip(self.HABITS, peers, strict=True))
        self._chance = random.Random(seed)

    async def run(self) -> None:
        """Repeats actions until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for habit in (self._steady, self._roaming, self._leaving, self._careless, self._strangers, self._guests):
                group.create_task(habit())

    async def _steady(self) -> None:
        async with self._client("steady") as client, asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(self._mixture(client))

    async def _roaming(self) -> None:
        # The server cannot reach a client that has moved and only waits, so keepalives announce its
        # address.
        async with self._client("roaming", keepalive=1) as client, asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(self._mixture(client))
            while True:
                await asyncio.sleep(self._chance.uniform(1, 4))
                await self.tally.do(client, "rebind")

    async def _leaving(self) -> None:
        while True:
            async with self._client("leaving") as client:
                await self._some(client, 5)
                await asyncio.sleep(REKEY)
                # wireguard-go ignores the request soon after a handshake of its own.
                with contextlib.suppress(WgClientError):
                    await client.do("handshake", timeout=1)
                    self.tally.done["handshake"] += 1
                await self._some(client, 5)
                async with contextlib.AsyncExitStack() as left:
                    # Connections that neither end closes.
                    for _ in range(3):
                        await left.enter_async_context(client.tcp(f"{V4}:7"))
                    client.process.kill()
                    await client.process.wait()
            await asyncio.sleep(self._chance.uniform(0, 3))

    async def _careless(self) -> None:
        """Uses handlers that fail. Accepts any outcome, and must be served afterwards."""
        async with self._client("careless") as client:
            while True:
                port = self._chance.randrange(careless.RAISES, careless.RETURNS + 1)
                with contextlib.suppress(WgClientError):
                    async with client.tcp(f"{V4}:{port}") as conn:
                        await conn.write(bytes(MB), timeout=1)
                        await conn.read(timeout=1)
                with contextlib.suppress(WgClientError):
                    async with client.udp(f"[{V6}]:{port}") as datagrams:
                        for _ in range(300):
                            await datagrams.write(bytes(1000), timeout=1)
                self.tally.done["careless"] += 1
                await self._some(client, 1)

    async def _strangers(self) -> None:
        with outer.stranger(self._server) as stranger:
            while True:
                noise = self._chance.randbytes(self._chance.randrange(1500))
                for datagram in (noise, outer.DATA + noise, outer.initiation(), outer.initiation(self._public_key)):
                    with contextlib.suppress(BlockingIOError):
                        stranger.send(datagram)
                self.tally.done["strangers"] += 1
                await asyncio.sleep(0.02)

    async def _guests(self) -> None:
        """Uses the other module, which answers, and then makes it fail."""
        loop = asyncio.get_running_loop()
        while True:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as user:
                user.connect((HOST, self._guest))
                user.setblocking(False)
                for number in range(self._chance.randrange(20, 100)):
                    user.send(b"message %d" % number)
                    with contextlib.suppress(TimeoutError, ConnectionRefusedError):
                        await asyncio.wait_for(loop.sock_recv(user, 2048), 0.2)
                        self.tally.done["guest"] += 1
                    await asyncio.sleep(PAUSE)
            module_files.tell(self._guest, self._chance.choice(FAILURES))

    async def _mixture(self, client: WgClient) -> None:
        while True:
            await self._some(client, 1)
            await asyncio.sleep(PAUSE)

    async def _some(self, client: WgClient, count: int) -> None:
        for _ in range(count):
            action, port, parameters = self._chance.choice(ACTIONS)
            to = self._chance.choice((V4, V6))
            if port is not None:
                to = f"[{to}]:{port}" if ":" in to else f"{to}:{port}"
            await self.tally.do(client, action, to=to, **parameters)

    def _client(self, habit: str, **options):
        peer = self._peers[habit]
        return WgClient.start(
            server=f"{HOST}:{self._server}",
            private_key=peer.private_key,
            peer_public_key=self._public_key,
            address=peer.addresses,
            **options,
        )

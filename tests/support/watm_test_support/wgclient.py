"""The WireGuard client for asyncio tests: one process, one tunnel, many actions.

async with WgClient.start(server=..., private_key=..., peer_public_key=...) as client:
    async with client.tcp("10.9.8.7:80") as conn:
        await conn.write(b"hello")
        assert await conn.read() == b"hello"
    assert (await client.do("ping", to="fd00::9", count=3))["replies"] == 3
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import pathlib
from collections.abc import AsyncIterator
from typing import Any

from watm_test_support.repository import ROOT

BINARY = pathlib.Path(os.environ.get("WGCLIENT", ROOT / "build" / "wgclient"))
_LINE_LIMIT = 16 << 20  # the client's own limit of a line
# Seconds. wireguard-go rounds the timestamp in its handshakes down to 2^24 ns (tai64n/tai64n.go),
# and a server refuses one that is not later than the last: a client that comes up sooner after
# another with the same key gets no session until it tries again, five seconds later.
_TIMESTAMP_STEP = 0.017


class WgClientError(Exception):
    """An error that the client reports."""


class WgClientTimeout(WgClientError):
    """An action that did not end in time."""


class WgClient:
    """A running `wgclient serve`. Use `start`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._ids = itertools.count(1)
        self._names = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._ready = asyncio.get_running_loop().create_future()
        self._waiting[0] = self._ready
        self._reader = asyncio.create_task(self._read_replies())

    @classmethod
    @contextlib.asynccontextmanager
    async def start(cls, *, prefix: tuple[str, ...] = (), **options: Any) -> AsyncIterator[WgClient]:
        """Runs the client until the block ends.

        `options` are the command's flags with `_` for `-`; `prefix` is a command
        to run it under, such as `("ip", "netns", "exec", "one")`.
        """
        if not BINARY.exists():
            raise FileNotFoundError(f"{BINARY} is missing: go -C tests/wgclient build -o ../../build/wgclient .")
        await asyncio.sleep(_TIMESTAMP_STEP)
        flags = [f"--{name.replace('_', '-')}={_flag(value)}" for name, value in options.items()]
        process = await asyncio.create_subprocess_exec(
            *prefix,
            str(BINARY),
            "serve",
            *flags,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT,
        )
        client = cls(process)
        try:
            await asyncio.wait_for(asyncio.shield(client._ready), 10)
            yield client
        finally:
            await client._stop()

    async def do(self, action: str, *, timeout: float = 10, **parameters: Any) -> Any:
        """Performs one action (README.md lists them) and returns its result.

        Raises `WgClientTimeout` after `timeout` seconds and `WgClientError` for
        anything else that the client reports.
        """
        number = next(self._ids)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        request = {"id": number, "do": action, "timeout_ms": max(1, round(timeout * 1000)), **parameters}
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request, default=_encode).encode() + b"\n")
            await self.process.stdin.drain()
            # The client enforces the time limit. The margin is for a client that hangs.
            return await asyncio.wait_for(answer, timeout + 5)
        finally:
            self._waiting.pop(number, None)

    @contextlib.asynccontextmanager
    async def tcp(self, to: str, *, local_port: int = 0, timeout: float = 10) -> AsyncIterator[Socket]:
        """A TCP connection through the tunnel, closed at the end of the block."""
        async with self._open("tcp", to, local_port, timeout) as opened:
            yield opened

    @contextlib.asynccontextmanager
    async def udp(self, to: str, *, local_port: int = 0) -> AsyncIterator[Socket]:
        """A UDP socket in the tunnel, connected to `to`."""
        async with self._open("udp", to, local_port, 10) as opened:
            yield opened

    @contextlib.asynccontextmanager
    async def _open(self, network: str, to: str, local_port: int, timeout: float) -> AsyncIterator[Socket]:
        name = f"{network}{next(self._names)}"
        answer = await self.do("open", name=name, network=network, to=to, local_port=local_port, timeout=timeout)
        opened = Socket(self, name, answer["local"])
        try:
            yield opened
        finally:
            if not opened.closed and self.process.returncode is None:
                await opened.close()

    async def inject(self, packet: bytes) -> None:
        """Sends one IP packet through the tunnel unchanged."""
        await self.do("inject", packet=packet)

    async def captured(self) -> list[bytes]:
        """Returns the IP packets that arrived since `do("capture", on=True)` or the last call."""
        packets = (await self.do("captured"))["packets"] or []
        return [base64.b64decode(packet) for packet in packets]

    async def _read_replies(self) -> None:
        assert self.process.stdout is not None and self.process.stderr is not None
        while line := await self.process.stdout.readline():
            reply = json.loads(line)
            waiting = self._waiting.get(reply["id"])
            if waiting is None or waiting.done():
                continue
            if "error" in reply:
                kind = WgClientTimeout if reply.get("kind") == "timeout" else WgClientError
                waiting.set_exception(kind(reply["error"]))
            else:
                waiting.set_result(reply.get("ok"))
        complaint = (await self.process.stderr.read()).decode(errors="replace").strip()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(WgClientError(complaint or "the client has ended"))

    async def _stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), 5)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()  # the waiting call has reported it


class Socket:
    """A TCP connection or UDP socket inside the tunnel."""

    def __init__(self, client: WgClient, name: str, local: str) -> None:
        self._client = client
        self._name = name
        self.local = local  # address:port
        self.closed = False

    async def write(self, data: bytes, *, timeout: float = 10) -> None:
        """Sends all of `data`; over UDP, as one datagram."""
        await self._client.do("write", name=self._name, data=data, timeout=timeout)

    async def read(self, size: int = 65536, *, timeout: float = 10) -> bytes:
        """Returns the available bytes, up to `size`; one datagram over UDP; b"" at the end."""
        return await self._read(size, False, timeout)

    async def read_exactly(self, size: int, *, timeout: float = 10) -> bytes:
        """Returns `size` bytes, or fewer at the end of the stream."""
        return await self._read(size, True, timeout)

    async def read_all(self, *, timeout: float = 10) -> bytes:
        """Returns everything up to the end, at most 8 MiB."""
        answer = await self._client.do("read-all", name=self._name, timeout=timeout)
        return base64.b64decode(answer["data"] or "")

    async def close_write(self) -> None:
        """Sends a FIN; reading continues."""
        await self._client.do("close-write", name=self._name)

    async def close(self) -> None:
        """Ends both directions."""
        self.closed = True
        await self._client.do("close", name=self._name)

    async def abort(self) -> None:
        """Sends an RST."""
        self.closed = True
        await self._client.do("abort", name=self._name)

    async def _read(self, size: int, exactly: bool, timeout: float) -> bytes:
        answer = await self._client.do("read", name=self._name, max=size, exactly=exactly, timeout=timeout)
        return base64.b64decode(answer["data"] or "")


def _flag(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def _encode(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} has no form in JSON")

"""Destinations by name, when the system's resolver gets no answer."""

import asyncio
import contextlib
import pathlib
import random
import re
import shlex
from collections.abc import AsyncIterator

import pytest

from watm_test_support import needs
from watm_test_support.repository import MODULES, WATM

HOST = "127.0.0.1"
LIMIT = 30
# The most lookups at once for a module.
MOST = 8
NAMES = 24


class Silent(asyncio.DatagramProtocol):
    """A DNS server that records queries without an answer, until it is told to answer that no name exists."""

    def __init__(self) -> None:
        self.asked: dict[bytes, tuple[bytes, tuple]] = {}
        self.answers = False

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple) -> None:
        self.asked[data[13 : 13 + data[12]]] = (data, addr)
        if self.answers:
            # NXDOMAIN (RFC 1035 section 4.1.1), with the question.
            self.transport.sendto(data[:2] + b"\x81\x83" + data[4:6] + bytes(6) + data[12:], addr)


@contextlib.asynccontextmanager
async def proxy(folder: pathlib.Path, module: str, resolver: str) -> AsyncIterator[int]:
    """Runs a SOCKS proxy of this module that resolves names there. Yields its port."""
    (folder / "resolv.conf").write_text(f"nameserver {resolver}\noptions timeout:1 attempts:20 single-request\n")
    (folder / "nsswitch.conf").write_text("hosts: dns\n")
    mounts = "".join(f"mount --bind {shlex.quote(str(folder / name))} /etc/{name} && " for name in ("resolv.conf", "nsswitch.conf"))
    command = [WATM, "dial", "--unsealed", "--state", folder / "state.json", MODULES / module, "--socks5", f"{HOST}:0"]
    script = mounts + "exec " + shlex.join(map(str, command))
    process = await asyncio.create_subprocess_exec("unshare", "-m", "sh", "-c", script, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(LIMIT):
            while not (found := re.search(rb"listening on 127\.0\.0\.1:(\d+)", line := await process.stderr.readline())):
                assert line, "it has ended"
        yield int(found[1])
    finally:
        process.terminate()
        await asyncio.wait_for(process.communicate(), LIMIT)


async def connect(port: int, name: bytes) -> bytes:
    """Returns the answer to a SOCKS client that connects to this name."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(b"\x05\x01\x00\x05\x01\x00\x03" + bytes([len(name)]) + name + b"\x00\x50")
    answer = await reader.read(100)
    while len(answer) < 4 and (more := await reader.read(100)):
        answer += more
    writer.close()
    return answer


@pytest.mark.parametrize("module", ["plain.wasm", "plain.watm1.wasm"])
async def test_no_more_names_than_these_are_looked_up_at_once(module: str, tmp_path: pathlib.Path) -> None:
    needs.root("files of its own in /etc")
    resolver = f"127.53.{random.randrange(256)}.{random.randrange(1, 255)}"
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(Silent, local_addr=(resolver, 53))
    names = {f"n{number}".encode() for number in range(NAMES)}
    with contextlib.closing(transport):
        async with proxy(tmp_path, module, resolver) as port, asyncio.timeout(LIMIT):
            clients = [asyncio.ensure_future(connect(port, name + b".test")) for name in names]
            while len(server.asked) < MOST:
                await asyncio.sleep(0.05)
            # Longer than the queries for the other names take.
            await asyncio.sleep(1)
            assert len(names & set(server.asked)) == MOST
            server.answers = True
            await asyncio.gather(*clients)
            assert names <= set(server.asked)

"""SOCKS5 as a mode of mitmproxy, for curl and for PySocks."""

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from watm_test_support.mitmproxy_programs import Program, start

HOST = "127.0.0.1"
LIMIT = 30
# A client with PySocks of the system Python. It sends datagrams to the address of the server, and ignores the one that the
# server answers.
PYSOCKS = """
import socks, sys
client = socks.socksocket(type=socks.socket.SOCK_DGRAM)
client.settimeout(20)
client.set_proxy(socks.SOCKS5, "127.0.0.1", int(sys.argv[1]), username="bob", password="other")
for host in ("127.0.0.1", "localhost"):
    client.sendto(host.encode(), (host, int(sys.argv[2])))
    print(client.recvfrom(2000)[0].decode())
"""


class Upper(asyncio.DatagramProtocol):
    """Answers in upper case."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self.transport.sendto(data.upper(), address)


async def listening(program: Program) -> int:
    """The port of its server."""
    return int((await program.wait_for(r"SOCKS5 server listening at .*:(\d+)")).group(1))


def mode(folder: Path) -> tuple[str, str]:
    """The arguments for a server with two users."""
    users = [{"name": "alice", "password": "s:ecret"}, {"name": "bob", "password": "other"}]
    path = folder / "users.json"
    path.write_text(json.dumps({"users": users}))
    return "--mode", f"watm:socks5?config={path}@{HOST}:0"


async def curl(port: int, user: str, url: str) -> subprocess.CompletedProcess[str]:
    """Fetches a page through the server as this user."""
    command = ["curl", "-sS", "--max-time", str(LIMIT), "--socks5-hostname", f"{HOST}:{port}", "--proxy-user", user, url]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=LIMIT)


@contextlib.asynccontextmanager
async def listener() -> AsyncIterator[int]:
    """A server that says nothing, since the observer answers in its place; its port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(handle, HOST, 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_curls_flows_are_its_users(tmp_path) -> None:
    async with listener() as there, start("mitmdump-watm", tmp_path, *mode(tmp_path)) as program:
        port = await listening(program)
        url = f"http://localhost:{there}/page"
        done = await curl(port, "alice:s%3Aecret", url)
        assert (done.returncode, done.stdout) == (0, "from inside /page"), done.stderr
        flow = await program.flow(flow="http", url=url)
        assert flow["server"] == ["localhost", there]
        assert flow["peer"] == "alice" and flow["peername"][0] == HOST
        done = await curl(port, "alice:wrong", url)
        assert done.returncode == 97, "curl's code for a handshake that a proxy refused"
    for secret in ("s:ecret", "wrong"):
        assert secret not in program.text
    assert "Traceback" not in program.text


async def test_pysocks_datagrams_are_flows_of_its_user(tmp_path) -> None:
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Upper, local_addr=(HOST, 0))
    with contextlib.closing(transport):
        echo = transport.get_extra_info("sockname")[1]
        async with start("mitmdump-watm", tmp_path, *mode(tmp_path)) as program:
            port = await listening(program)
            command = ["/usr/bin/python3", "-c", PYSOCKS, str(port), str(echo)]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=LIMIT)
            assert done.stdout == "127.0.0.1\nLOCALHOST\n", done.stderr
            for text in ("127.0.0.1", "localhost"):
                flow = await program.flow(flow="udp", content=text, from_client=True)
                assert flow["peer"] == "bob" and flow["server"][1] == echo

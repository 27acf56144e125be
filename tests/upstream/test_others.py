"""Upstreams through shadowsocks to shadowsocks-libev, and through WATER modules; datagrams in mitmproxy's own modes."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator

import pytest

import mitmproxy_watm
from watm_test_support.ports import free_port

from .ends import INSIDE, LIMIT, fetch, flow, page, proxy, upstream, vpn, written

METHOD, PASSWORD = "chacha20-ietf-poly1305", "a password"


@contextlib.asynccontextmanager
async def ss_server() -> AsyncIterator[int]:
    """Runs shadowsocks-libev. Yields its port."""
    port = free_port()
    command = ["ss-server", "-u", "-s", "127.0.0.1", "-p", str(port), "-k", PASSWORD, "-m", METHOD]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(LIMIT):
            while True:
                with contextlib.suppress(ConnectionRefusedError):
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                    break
                await asyncio.sleep(0.02)
        yield port
    finally:
        process.terminate()
        await process.wait()


class Upper(asyncio.DatagramProtocol):
    """Runs a server that answers in upper case."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self.transport.sendto(data.upper(), address)


async def exchange(port: int, datagram: bytes) -> bytes:
    """Returns the answer to a datagram."""
    loop = asyncio.get_running_loop()
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", port))
        await loop.sock_sendall(client, datagram)
        async with asyncio.timeout(LIMIT):
            return await loop.sock_recv(client, 65536)


async def test_shadowsocks_carries_streams_and_datagrams(tmp_path) -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Upper, local_addr=("127.0.0.1", 0))
    with contextlib.closing(transport):
        echo = transport.get_extra_info("sockname")[1]
        async with ss_server() as server, page("behind shadowsocks") as there:
            config = {"server": "127.0.0.1", "server_port": server, "method": METHOD, "password": PASSWORD}
            option = upstream(f"ss=shadowsocks?config={written(tmp_path, 'ss.json', json.dumps(config))}")
            all_of_it = ("--set", "watm_route=*=ss")
            async with proxy(tmp_path, *option, *all_of_it) as (program, port):
                # The server resolves the name.
                for host in ("127.0.0.1", "localhost"):
                    assert await fetch(port, f"http://{host}:{there}/") == "behind shadowsocks"
                assert (await flow(program, address=["localhost", there]))["upstream"] == "ss"
            async with proxy(tmp_path, *option, *all_of_it, mode=f"reverse:udp://127.0.0.1:{echo}") as (program, port):
                assert await exchange(port, b"hello") == b"HELLO"
                assert (await flow(program, flow="udp", said="HELLO"))["upstream"] == "ss"


@pytest.mark.parametrize("how", ["to", "fixed"])
async def test_a_module_of_water_goes_to_its_other_end(tmp_path, how: str) -> None:
    async def handle(stream: mitmproxy_watm.Stream) -> None:
        await stream.readuntil(b"\r\n\r\n")
        stream.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nthere")
        stream.close()

    async with await mitmproxy_watm.start_server("plain", "127.0.0.1", 0, handle_tcp_stream=handle) as server:
        port = server.getsockname()[1]
        config = written(tmp_path, "plain.toml", f'remote = "127.0.0.1:{port}"')
        options = {"to": f"to=127.0.0.1:{port}", "fixed": f"fixed=on&config={config}&allow=127.0.0.1"}
        async with proxy(tmp_path, *upstream(f"plain?{options[how]}")) as (program, near):
            assert await fetch(near, "http://wherever.test/") == "there"
            found = await flow(program, flow="http")
            assert (found["upstream"], found["address"]) == ("plain", ["wherever.test", 80])


async def test_a_module_that_carries_no_datagrams_says_so(tmp_path) -> None:
    async with proxy(tmp_path, *upstream("plain"), mode="reverse:udp://127.0.0.1:9") as (program, port):
        with pytest.raises((TimeoutError, ConnectionRefusedError)):
            async with asyncio.timeout(0.3):
                await exchange(port, b"hello")
        async with asyncio.timeout(LIMIT):
            await program.wait_for("not supported through plain: carries streams, and no datagrams")


async def test_datagrams_of_mitmproxys_own_modes_go_through_a_tunnel(tmp_path) -> None:
    async with vpn() as config:
        option = upstream(f"wireguard?config={written(tmp_path, 'wg0.conf', config)}")
        async with proxy(tmp_path, *option, mode=f"reverse:udp://{INSIDE}:7") as (program, port):
            assert await exchange(port, b"hello") == b"hello"
            assert (await flow(program, flow="udp", said="hello"))["upstream"] == "wireguard"
        query = b"\x12\x34\1\0\0\1" + bytes(6) + b"\6inside\4test\0\0\1\0\1"
        for mode in (f"reverse:dns://{INSIDE}", "dns"):
            async with proxy(tmp_path, *option, mode=mode) as (program, port):
                answer = await exchange(port, query)
                assert answer[:2] == query[:2]
                found = await flow(program, flow="dns")
                assert found["upstream"] == "wireguard"
        # The last mode is mitmproxy's resolver, which repeats the query when an answer is
        # truncated.
        assert answer.endswith(socket.inet_aton(INSIDE))
        assert found["said"] == [INSIDE]

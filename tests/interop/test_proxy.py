"""The PROXY protocol with haproxy and curl as proxies."""

import asyncio
import contextlib
import ipaddress
import pathlib
import socket
import struct
import subprocess
from collections.abc import AsyncIterator

import pytest

import mitmproxy_watm
from watm_test_support.mitmproxy_programs import start
from watm_test_support.ports import free_port
from watm_test_support.upper_case import upper

HOST = "127.0.0.1"
ANY = 'from = "any"'
# Seconds for one step.
LIMIT = 10


@contextlib.asynccontextmanager
async def haproxy(folder: pathlib.Path, server: str, *, to: int) -> AsyncIterator[int]:
    """Runs haproxy with a frontend, whose port it returns, and a backend with these parameters."""
    port = free_port()
    config = folder / "haproxy.cfg"
    config.write_text(
        f"""
defaults
    mode tcp
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend in
    bind {HOST}:{port}
    unique-id-format request-%ci
    tcp-request connection set-src str(192.0.2.7)
    tcp-request connection set-src-port int(5555)
    default_backend out
backend out
    server one {HOST}:{to} {server}
"""
    )
    process = await asyncio.create_subprocess_exec("haproxy", "-db", "-f", config)
    try:
        async with asyncio.timeout(LIMIT):
            while True:
                with contextlib.suppress(ConnectionError):
                    _, writer = await asyncio.open_connection(HOST, port)
                    writer.close()
                    break
                await asyncio.sleep(0.02)
        yield port
    finally:
        process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def server(config: str) -> AsyncIterator[tuple[int, asyncio.Queue]]:
    """An echo server, and the source of each connection that sends data."""
    seen: asyncio.Queue = asyncio.Queue()

    async def echo(stream) -> None:
        while data := await stream.read(65536):
            seen.put_nowait({name: stream.get_extra_info(name) for name in ("peername", "sockname", "attributes")})
            stream.write(data)
            await stream.drain()
        stream.close()

    async with await mitmproxy_watm.start_server("proxy-protocol", HOST, 0, config=config, handle_tcp_stream=echo) as running:
        yield running.getsockname()[1], seen


@pytest.mark.parametrize("version", ["send-proxy", "send-proxy-v2"])
async def test_haproxy_says_who_a_connection_is_from(version: str, tmp_path) -> None:
    async with server(ANY) as (to, seen), haproxy(tmp_path, version, to=to) as port:
        async with asyncio.timeout(LIMIT):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"x" * 300_000)
            assert await reader.readexactly(300_000) == b"x" * 300_000
            said = await seen.get()
            writer.close()
        assert said["peername"] == ("192.0.2.7", 5555)
        assert said["sockname"] == (HOST, port)


async def test_haproxys_facts_and_checksum_are_taken(tmp_path) -> None:
    options = "send-proxy-v2 proxy-v2-options crc32c,unique-id"
    async with server(ANY) as (to, seen), haproxy(tmp_path, options, to=to) as port:
        async with asyncio.timeout(LIMIT):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            said = await seen.get()
            writer.close()
        assert said["peername"] == ("192.0.2.7", 5555)
        name = "request-192.0.2.7"
        # The TLV unchanged, for programs that pass it on.
        tlv = bytes([0x05, 0, len(name)]) + name.encode()
        assert said["attributes"] == {"proxy.unique-id": name, "proxy.tlvs": tlv.hex()}


async def test_haproxys_health_checks_are_its_own(tmp_path) -> None:
    """Health checks send LOCAL, and close without data."""
    async with server(ANY) as (to, seen):
        async with haproxy(tmp_path, "send-proxy-v2 check check-send-proxy inter 50", to=to) as port:
            await asyncio.sleep(0.5)
            async with asyncio.timeout(LIMIT):
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"
                writer.close()
            assert (await seen.get())["peername"] == ("192.0.2.7", 5555)


async def test_nobody_else_is_believed(tmp_path) -> None:
    async with server('from = "192.0.2.0/24"') as (to, seen), haproxy(tmp_path, "send-proxy-v2", to=to) as port:
        async with asyncio.timeout(LIMIT):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"hello")
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        assert seen.empty()


async def test_a_connection_without_a_header_is_reset(tmp_path) -> None:
    async with server(ANY) as (to, seen):
        async with asyncio.timeout(LIMIT):
            reader, writer = await asyncio.open_connection(HOST, to)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.close()
        assert seen.empty()


async def test_curl_through_mitmdump_is_seen_as_the_client(tmp_path) -> None:
    config = tmp_path / "proxy.conf"
    config.write_text(ANY)
    async with upper() as upstream:
        mode = f"watm:proxy-protocol?config={config}&to=http://{HOST}:{upstream}@{HOST}:0"
        async with start("mitmdump-watm", tmp_path, "--mode", mode) as program:
            port = int((await program.wait_for(r"PROXY protocol server listening at .*:(\d+)")).group(1))
            assert await curl("--haproxy-protocol", f"http://{HOST}:{port}/page") == b"from inside /page"
            async with haproxy(tmp_path, "send-proxy-v2", to=port) as balanced:
                assert await curl(f"http://{HOST}:{balanced}/other") == b"from inside /other"
                flow = await program.flow(flow="http", url=f"http://{HOST}:{upstream}/other")
                assert flow["peername"] == ["192.0.2.7", 5555]


async def curl(*arguments: str) -> bytes:
    """Returns the page that curl fetches."""
    command = ["curl", "-sS", *arguments]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=LIMIT, check=True)
    return done.stdout


@pytest.mark.parametrize("client", ["192.0.2.7", "2001:db8::7"])
async def test_streams_go_where_their_clients_went_in_mitmdump(client: str, tmp_path) -> None:
    """Without the option `to`, flows go to the destination in the header."""
    config = tmp_path / "proxy.conf"
    config.write_text(ANY)
    family = socket.AF_INET6 if ":" in client else socket.AF_INET
    host = "::1" if ":" in client else HOST

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(100))
        writer.close()

    async with await asyncio.start_server(echo, host, 0, family=family) as upstream:
        to = upstream.sockets[0].getsockname()[1]
        mode = f"watm:proxy-protocol?config={config}@{HOST}:0"
        async with start("mitmdump-watm", tmp_path, "--mode", mode) as program, asyncio.timeout(LIMIT):
            port = int((await program.wait_for(r"PROXY protocol server listening at .*:(\d+)")).group(1))
            reader, writer = await asyncio.open_connection(HOST, port)
            version = "TCP6" if ":" in client else "TCP4"
            writer.write(f"PROXY {version} {client} {host} 5555 {to}\r\nquestion".encode())
            assert await reader.readexactly(8) == b"question"
            writer.close()
            flow = await program.flow(flow="tcp", content="question", from_client=True)
            assert flow["peername"][:2] == [client, 5555]
            assert flow["server"][:2] == [host, to]


def datagram(port: int, payload: bytes) -> bytes:
    """Opens a connection with the header of a client."""
    ends = ipaddress.ip_address("192.0.2.7").packed + ipaddress.ip_address(HOST).packed
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c" + ends + struct.pack(">HH", 5555, port) + payload


async def test_datagrams_are_their_clients_in_mitmdump(tmp_path) -> None:
    config = tmp_path / "proxy.conf"
    config.write_text(ANY)
    with socket.socket(type=socket.SOCK_DGRAM) as upstream, socket.socket(type=socket.SOCK_DGRAM) as proxy:
        upstream.bind((HOST, 0))
        upstream.setblocking(False)
        proxy.setblocking(False)
        to = upstream.getsockname()[1]
        mode = f"watm:proxy-protocol?config={config}@{HOST}:0"
        async with start("mitmdump-watm", tmp_path, "--mode", mode) as program, asyncio.timeout(LIMIT):
            port = int((await program.wait_for(r"PROXY protocol server listening at .*:(\d+)")).group(1))
            loop = asyncio.get_running_loop()
            await loop.sock_sendto(proxy, datagram(to, b"question"), (HOST, port))
            asked, peer = await loop.sock_recvfrom(upstream, 100)
            assert asked == b"question"
            await loop.sock_sendto(upstream, b"answer", peer)
            assert await loop.sock_recv(proxy, 100) == b"answer"
            flow = await program.flow(flow="udp", content="question", from_client=True)
            assert flow["peername"] == ["192.0.2.7", 5555]
            assert flow["server"] == [HOST, to]

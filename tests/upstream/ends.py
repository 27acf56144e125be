"""Both ends: a VPN server that is wireguard-go, mitmproxy with an upstream, and curl."""

import asyncio
import contextlib
import json
import pathlib
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator

from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support import mitmproxy_programs
from watm_test_support.ports import free_port
from watm_test_support.repository import ROOT

FOLDER = pathlib.Path(__file__).parent
# The address of wireguard-go inside the tunnel, with a page, echoes, and DNS.
INSIDE = "10.7.0.1"
# The time limit of each step in seconds, many times the usual duration.
LIMIT = 30


@contextlib.asynccontextmanager
async def vpn(dns: str = INSIDE) -> AsyncIterator[str]:
    """Runs a VPN provider's server. Yields the provider's file."""
    client, server = genkey(), genkey()
    command = [ROOT / "build" / "wgclient", "answer", "--server", "127.0.0.1:9", "--private-key", server]
    command += ["--peer-public-key", pubkey(client), "--address", INSIDE]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        async with asyncio.timeout(LIMIT):
            port = json.loads(await process.stdout.readline())["listen_port"]
        yield (
            f"[Interface]\nPrivateKey = {client}\nAddress = 10.7.0.2/32\nDNS = {dns}, search.test\n"
            f"[Peer]\nPublicKey = {pubkey(server)}\nAllowedIPs = 0.0.0.0/0\nEndpoint = 127.0.0.1:{port}\n"
        )
    finally:
        process.stdin.close()
        await process.wait()


def written(folder: pathlib.Path, name: str, text: str) -> pathlib.Path:
    """Writes a file, and returns its path."""
    path = folder / name
    path.write_text(text)
    return path


@contextlib.asynccontextmanager
async def proxy(folder: pathlib.Path, *arguments: str, mode: str = "regular") -> AsyncIterator[tuple[mitmproxy_programs.Program, int]]:
    """Runs mitmdump with these arguments. Yields it with its port."""
    port = free_port()
    observer = ["-s", str(FOLDER / "addons" / "observer.py")]
    options = ["--mode", f"{mode}@127.0.0.1:{port}", "--set", "block_global=false", *arguments, *observer]
    async with mitmproxy_programs.start("mitmdump-watm", folder, *options, observed=False) as program:
        async with asyncio.timeout(LIMIT):
            await program.wait_for(r"listening at|does not run|rror")
        yield program, port


def upstream(value: object) -> tuple[str, str]:
    """Returns the option that adds an upstream."""
    return "--set", f"watm_upstream={value}"


def route(value: str) -> tuple[str, str]:
    """Returns the option that adds a route."""
    return "--set", f"watm_route={value}"


async def curl(*arguments: str) -> tuple[int, str]:
    """Returns curl's exit code and the page."""
    command = ["curl", "-sS", "--max-time", str(LIMIT), *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    fetched, _ = await process.communicate()
    return process.returncode, fetched.decode()


async def fetch(port: int, url: str, *arguments: str) -> str:
    """Returns the page that curl gets through the proxy, or its error."""
    return (await curl("--proxy", f"http://127.0.0.1:{port}", url, *arguments))[1]


async def flow(program: mitmproxy_programs.Program, **facts: object) -> dict:
    """Waits for the first flow with these facts."""
    async with asyncio.timeout(LIMIT):
        return await program.flow(**facts)


@contextlib.asynccontextmanager
async def page(text: str) -> AsyncIterator[int]:
    """Serves one page on this machine. Yields its port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()

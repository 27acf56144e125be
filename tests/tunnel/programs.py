"""Both ends of a tunnel: wireguard-go with services inside, and `watm dial` or `watm tunnel` with its listeners."""

import asyncio
import contextlib
import os
import pathlib
import socket
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass

from watm_test_support.repository import MODULES, WATM
from watm_test_support.wgclient import WgClient

WIREGUARD = MODULES / "wireguard.wasm"
# The addresses inside the tunnel of wireguard-go and of its client.
INSIDE = "10.7.0.1"
OURS = "10.7.0.2"
# The time limit of each step in seconds, many times the usual duration.
LIMIT = 30


@dataclass(frozen=True)
class Peer:
    """A running wireguard-go, and the configuration of its client."""

    config: str
    port: int
    pid: int
    client: WgClient


@contextlib.asynccontextmanager
async def peer(interface: str = "", *, shared: bool = False) -> AsyncIterator[Peer]:
    """Runs echoes, a page and DNS inside a tunnel, with or without a preshared key. `interface` has
    more lines for the client's file.
    """
    client, server = await wg("genkey"), await wg("genkey")
    options = {"psk": await wg("genpsk")} if shared else {}
    preshared = f"PresharedKey = {options['psk']}\n" if shared else ""
    ours, theirs = await wg("pubkey", client), await wg("pubkey", server)
    async with WgClient.start(
        server="127.0.0.1:9", private_key=server, peer_public_key=ours, address=INSIDE, **options
    ) as inside:
        port = (await inside.do("answer"))["listen_port"]
        yield Peer(
            f"[Interface]\nPrivateKey = {client}\nAddress = {OURS}/32\n{interface}"
            f"[Peer]\nPublicKey = {theirs}\n{preshared}AllowedIPs = 0.0.0.0/0\n"
            f"Endpoint = 127.0.0.1:{port}\n",
            port,
            inside.process.pid,
            inside,
        )


@dataclass
class Program:
    """A running `watm dial` or `watm tunnel`, with its listeners by kind."""

    ports: dict[str, int]
    process: asyncio.subprocess.Process

    async def says(self, text: str) -> str:
        """Waits for the next line that contains a text."""
        async with asyncio.timeout(LIMIT):
            while text not in (line := (await self.process.stderr.readline()).decode()):
                assert line, "the program has ended"
        return line


@contextlib.asynccontextmanager
async def dialling(folder: pathlib.Path, config: str, *options: str) -> AsyncIterator[Program]:
    """Runs `watm dial` with the WireGuard module and these listeners. It must exit with 0."""
    path = folder / "client.conf"
    path.write_text(config)
    async with running(await start(folder, "--config", path, "--udp", *options), options) as program:
        yield program


@contextlib.asynccontextmanager
async def tunnelling(folder: pathlib.Path, config: str, *options: str) -> AsyncIterator[Program]:
    """Runs `watm tunnel` with these listeners. It must exit with 0."""
    async with running(await tunnel(folder, config, *options), options) as program:
        yield program


@contextlib.asynccontextmanager
async def running(process: asyncio.subprocess.Process, options: tuple[str, ...]) -> AsyncIterator[Program]:
    """Waits for all listeners of a program, and yields it."""
    wanted = sum(option in ("--socks5", "--http", "--forward") for option in options)
    program = Program({}, process)
    try:
        while len(program.ports) < wanted:
            address, _, what = (await program.says("listening on ")).strip().partition(" for ")
            program.ports[what] = int(address.rpartition(":")[2])
        yield program
    finally:
        process.terminate()
        said = (await process.stderr.read()).decode()
        assert await process.wait() == 0, said


async def start(folder: pathlib.Path, *options: object) -> asyncio.subprocess.Process:
    """Starts `watm dial` with these options."""
    command = [WATM, "dial", "--unsealed", WIREGUARD, "--state", folder / "state.json", *options]
    command += ["--allow", "udp://127.0.0.1"]
    return await asyncio.create_subprocess_exec(*command, stderr=PIPE)


async def tunnel(folder: pathlib.Path, config: str, *options: object) -> asyncio.subprocess.Process:
    """Starts `watm tunnel` with this file and these options. It finds its module by itself."""
    path = folder / "wg0.conf"
    path.write_text(config)
    command = [WATM, "tunnel", "--unsealed", "--state", folder / "state.json", path, *options]
    environment = os.environ | {"WATM_MODULES": str(WIREGUARD.parent)}
    return await asyncio.create_subprocess_exec(*command, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE)


async def wg(what: str, key: str = "") -> str:
    """Returns a key."""
    process = await asyncio.create_subprocess_exec("wg", what, stdin=PIPE, stdout=PIPE)
    made, _ = await process.communicate(key.encode())
    return made.decode().strip()


async def udp(port: int, datagram: bytes) -> bytes:
    """Returns the answer to a datagram."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", port))
        await loop.sock_sendall(client, datagram)
        async with asyncio.timeout(LIMIT):
            return await loop.sock_recv(client, 65536)


async def curl(*arguments: str) -> tuple[int, str]:
    """Returns curl's exit code and the page."""
    command = ["curl", "-sS", "--max-time", str(LIMIT), *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    fetched, _ = await process.communicate()
    return process.returncode, fetched.decode()

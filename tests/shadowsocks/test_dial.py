"""`watm dial` as a proxy in front of other servers."""

import asyncio
import contextlib
import random
import re
import shutil
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from watm_test_support.repository import WATM

from .methods import LIBEV, RUST
from .ours import COMPONENT, config
from .peers import HOST, LIMIT, cases
from .services import Association, associate, connect, echo, exchange

DATA = random.Random(4).randbytes(300_000)


@dataclass
class Dialling:
    """A running `watm dial`: the ports of its listeners by kind, and its log."""

    ports: dict[str, int]
    said: asyncio.StreamReader


@contextlib.asynccontextmanager
async def dialling(
    folder: Path, configuration: str, server: int, *options: str, module: Path = COMPONENT
) -> AsyncIterator[Dialling]:
    """Runs `watm dial` with these options."""
    path = folder / "client.json"
    path.write_text(configuration)
    command = [WATM, "dial", "--unsealed", module, "--config", path, "--allow", f"{HOST}:{server}", *options]
    wanted = sum(option in ("--socks5", "--http", "--forward") for option in options)
    ports: dict[str, int] = {}
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(LIMIT):
            while len(ports) < wanted:
                line = (await process.stderr.readline()).decode()
                assert line, "the program has ended"
                if found := re.match(r"listening on \S+:(\d+) for (\w+)", line):
                    ports[found[2]] = int(found[1])
        yield Dialling(ports, process.stderr)
    finally:
        process.terminate()
        said = await process.stderr.read()
        assert await process.wait() == 0, said.decode()


async def curl(*arguments: str) -> bytes:
    """Returns the page that curl fetches."""
    command = ["curl", "-sS", "--max-time", str(LIMIT), *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    fetched, _ = await process.communicate()
    return fetched


@pytest.mark.parametrize(("peer", "method"), cases(LIBEV, RUST))
async def test_streams_and_datagrams_by_socks5(peer, method, tmp_path) -> None:
    async with echo() as port, peer.server(tmp_path, method) as server:
        configuration = config(method, server=HOST, server_port=server)
        async with dialling(tmp_path, configuration, server, "--udp", "--socks5", f"{HOST}:0") as near:
            socks = near.ports["socks5"]
            for target in (HOST, "localhost"):
                assert await exchange(*await connect(socks, target, port), DATA) == DATA
            # ss-server carries datagrams of less than 1500 bytes including headers by default.
            sent = [DATA[:length] for length in (1, 512, 1300)]
            assert await associate(socks, port, sent) == sent
            fetched = await curl("--socks5-hostname", f"{HOST}:{socks}", f"http://localhost:{port}/page")
            assert fetched == b"from inside /page"


@pytest.mark.parametrize(("peer", "method"), cases(LIBEV[3:4], RUST[3:4]))
async def test_other_ways_in(peer, method, tmp_path) -> None:
    async with echo() as port, peer.server(tmp_path, method) as server:
        configuration = config(method, server=HOST, server_port=server)
        forwards = [f"{kind}:{HOST}:0={HOST}:{port}" for kind in ("tcp", "udp")]
        options = ["--udp", "--http", f"{HOST}:0", "--forward", forwards[0], "--forward", forwards[1]]
        async with dialling(tmp_path, configuration, server, *options) as near:
            http = f"{HOST}:{near.ports['http']}"
            page = f"http://localhost:{port}/page"
            assert await curl("--proxytunnel", "--proxy", http, page) == b"from inside /page"
            assert await curl("--proxy", http, page) == b"from inside /page"
            assert await curl(f"http://{HOST}:{near.ports['tcp']}/page") == b"from inside /page"
            with socket.socket(type=socket.SOCK_DGRAM) as client:
                client.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(client, (HOST, near.ports["udp"]))
                for datagram in (b"hello", DATA[:1200]):
                    await loop.sock_sendall(client, datagram)
                    async with asyncio.timeout(LIMIT):
                        assert await loop.sock_recv(client, 65536) == datagram


@pytest.mark.parametrize(("peer", "method"), cases(LIBEV[3:4], RUST[3:4]))
async def test_an_association_goes_on_when_the_module_is_another(peer, method, tmp_path) -> None:
    module = tmp_path / "module.wasm"
    shutil.copy(COMPONENT, module)
    async with echo() as port, peer.server(tmp_path, method) as server:
        configuration = config(method, server=HOST, server_port=server)
        options = ["--udp", "--watch", "--socks5", f"{HOST}:0"]
        async with dialling(tmp_path, configuration, server, *options, module=module) as near:
            async with Association.through(near.ports["socks5"]) as client:
                assert await client.ask(port, b"before") == b"before"
                # An empty custom section makes it another file.
                other = tmp_path / "other.wasm"
                other.write_bytes(module.read_bytes() + b"\0\2\1x")
                other.replace(module)
                async with asyncio.timeout(LIMIT):
                    await near.said.readuntil(b"swapped in")
                # The flow ends with the module. A datagram that arrives before the client notices
                # is lost.
                answers: list[bytes] = []
                for _ in range(LIMIT):
                    if answers:
                        break
                    with contextlib.suppress(TimeoutError):
                        answers.append(await client.ask(port, b"after", 1))
                assert answers == [b"after"]
                assert await client.ask(port, b"again") == b"again"

"""`watm` and other programs, as processes."""

import asyncio
import contextlib
import json
import pathlib
import re
from collections.abc import AsyncIterator
from typing import Any

from watm_test_support.repository import MODULES, WATM

COMPONENT = MODULES / "tls.wasm"
WATER = MODULES / "tls.watm1.wasm"

HOST = "127.0.0.1"
# Seconds for one step.
LIMIT = 10

Config = dict[str, Any] | str


class Port(int):
    """A port, and the process that listens on it."""

    process: int

    def __new__(cls, port: bytes, process: int) -> "Port":
        it = super().__new__(cls, port)
        it.process = process
        return it


def written(config: Config, folder: pathlib.Path, name: str) -> pathlib.Path:
    """Writes a configuration as a file, in PEM or JSON."""
    path = folder / name
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return path


@contextlib.asynccontextmanager
async def listen(
    config: Config, to: int, folder: pathlib.Path, *options: str, module: pathlib.Path = COMPONENT
) -> AsyncIterator[int]:
    """Runs `watm listen` in front of a port. Yields the port that it listens on."""
    file = written(config, folder, "listen.conf")
    forward = ("--forward", f"{HOST}:{to}", "--config", str(file), *options)
    async with _watm("listen", "--unsealed", str(module), f"{HOST}:0", *forward) as port:
        yield port


@contextlib.asynccontextmanager
async def serve(
    config: Config, to: int, folder: pathlib.Path, *lines: str, workers: int = 1
) -> AsyncIterator[Port]:
    """Runs `watm serve` in front of a port, with additional lines. Yields the port that it listens on."""
    written(config, folder, "module.conf")
    listener = {
        "module": str(COMPONENT),
        "config-file": "module.conf",
        "addresses": [f"{HOST}:0"],
        "upstream": f"{HOST}:{to}",
        "workers": workers,
    }
    said = [f"{key} = {json.dumps(value)}" for key, value in listener.items()]
    file = written("\n".join(["[[listener]]", *said, *lines]), folder, "watm.toml")
    async with _watm("serve", "--unsealed", str(file)) as port:
        yield port


@contextlib.asynccontextmanager
async def dial(
    config: Config, to: str, folder: pathlib.Path, *options: str, module: pathlib.Path = COMPONENT
) -> AsyncIterator[int]:
    """Runs `watm dial` to an address. Yields the port that it listens on."""
    file = written(config, folder, "dial.conf")
    arguments = ("--unsealed", str(module), to, "--listen", f"{HOST}:0", "--config", str(file), *options)
    async with _watm("dial", *arguments) as port:
        yield port


@contextlib.asynccontextmanager
async def _watm(*arguments: str) -> AsyncIterator[Port]:
    process = await asyncio.create_subprocess_exec(WATM, *arguments, stdout=-1, stderr=asyncio.subprocess.STDOUT)
    said = b""
    try:
        async with asyncio.timeout(LIMIT):
            while not (found := re.search(rb"listening on .*:(\d+)", said)):
                line = await process.stdout.readline()
                assert line, said.decode()
                said += line
        reading = asyncio.create_task(process.stdout.read())
        yield Port(found[1], process.pid)
        assert process.returncode is None, await reading
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(LIMIT):
            await process.wait()


async def run(*command: str | pathlib.Path, say: bytes = b"", until: bytes = b"", status: int | None = 0) -> str:
    """Runs a program and returns its output and errors. Its standard input ends once it has printed `until`."""
    process = await asyncio.create_subprocess_exec(*command, stdin=-1, stdout=-1, stderr=asyncio.subprocess.STDOUT)
    said = b""
    try:
        async with asyncio.timeout(LIMIT):
            with contextlib.suppress(ConnectionError):
                process.stdin.write(say)
                await process.stdin.drain()
            while until not in said and (piece := await process.stdout.read(65536)):
                said += piece
            with contextlib.suppress(ConnectionError):
                process.stdin.close()
            said += await process.stdout.read()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = said.decode(errors="replace")
    assert status is None or process.returncode == status, text
    return text


@contextlib.asynccontextmanager
async def openssl_server(
    folder: pathlib.Path, chain: str, key: str, *options: str, answers: bool = True
) -> AsyncIterator[int]:
    """Runs `openssl s_server`, which returns each line in reverse unless it must not answer."""
    pair = written(chain + key, folder, "server.pem")
    answering = ("-rev",) if answers else ()
    command = ("openssl", "s_server", "-accept", f"{HOST}:0", "-cert", pair, "-key", pair, *answering, *options)
    process = await asyncio.create_subprocess_exec(*command, stdin=-1, stdout=-1, stderr=asyncio.subprocess.STDOUT)
    try:
        async with asyncio.timeout(LIMIT):
            while not (line := await process.stdout.readline()).startswith(b"ACCEPT"):
                assert line, "openssl s_server has ended"
        yield int(line.rsplit(b":", 1)[1])
    finally:
        process.kill()
        await process.wait()

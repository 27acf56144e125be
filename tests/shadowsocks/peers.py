"""Other implementations of shadowsocks, as processes."""

import asyncio
import contextlib
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from watm_test_support.ports import free_port
from watm_test_support.repository import ROOT

from .methods import password

PROGRAMS = ROOT / "build" / "peers" / "bin"
HOST = "127.0.0.1"
# Seconds for one step.
LIMIT = 10


@contextlib.asynccontextmanager
async def running(folder: pathlib.Path, program: str, *arguments: str | pathlib.Path, port: int) -> AsyncIterator[int]:
    """A program that listens on a TCP port."""
    log = folder / f"{pathlib.Path(program).name}-{port}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(program, *arguments, stdout=output, stderr=output)
    try:
        async with asyncio.timeout(LIMIT):
            while True:
                if process.returncode is not None:
                    raise AssertionError(f"{program} has ended: {log.read_text()}")
                with contextlib.suppress(ConnectionError):
                    _, writer = await asyncio.open_connection(HOST, port)
                    writer.close()
                    break
                await asyncio.sleep(0.02)
        yield port
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(LIMIT):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


@contextlib.asynccontextmanager
async def _configured(folder: pathlib.Path, program: str, port: int, settings: dict[str, Any], *flags: str) -> AsyncIterator[int]:
    path = folder / f"{pathlib.Path(program).name}-{port}.json"
    path.write_text(json.dumps(settings))
    async with running(folder, program, "-c", path, *flags, port=port) as listening:
        yield listening


class Libev:
    """shadowsocks-libev."""

    name = "libev"

    @staticmethod
    def server(folder: pathlib.Path, method: str, **more: Any) -> contextlib.AbstractAsyncContextManager[int]:
        """A server, whose port this is."""
        settings = {"server": HOST, "server_port": free_port(), "password": password(method), "method": method}
        return _configured(folder, "ss-server", settings["server_port"], settings | more, "-u")

    @staticmethod
    def client(folder: pathlib.Path, method: str, port: int, **more: Any) -> contextlib.AbstractAsyncContextManager[int]:
        """A SOCKS5 server whose connections go to the server at `port`."""
        settings = {
            "server": HOST,
            "server_port": port,
            "local_address": HOST,
            "local_port": free_port(),
            "password": password(method),
            "method": method,
        }
        return _configured(folder, "ss-local", settings["local_port"], settings | more, "-u")


class Rust:
    """shadowsocks-rust."""

    name = "rust"

    @staticmethod
    def server(folder: pathlib.Path, method: str, **more: Any) -> contextlib.AbstractAsyncContextManager[int]:
        """A server, whose port this is."""
        settings = {"server": HOST, "server_port": free_port(), "password": password(method), "method": method}
        # Users are supported only in a list of servers.
        listed = {"servers": [settings | {"mode": "tcp_and_udp"} | more]}
        return _configured(folder, str(PROGRAMS / "ssserver"), settings["server_port"], listed)

    @staticmethod
    def client(folder: pathlib.Path, method: str, port: int, **more: Any) -> contextlib.AbstractAsyncContextManager[int]:
        """A SOCKS5 server whose connections go to the server at `port`."""
        settings = {
            "server": HOST,
            "server_port": port,
            "local_address": HOST,
            "local_port": free_port(),
            "password": password(method),
            "method": method,
            "mode": "tcp_and_udp",
        }
        return _configured(folder, str(PROGRAMS / "sslocal"), settings["local_port"], settings | more)


def cases(methods_of_libev: list[str], methods_of_rust: list[str]) -> list:
    """Parameters `peer` and `method` of a test."""
    libev = [pytest.param(Libev, method, id=f"libev-{method}") for method in methods_of_libev]
    rust = [pytest.param(Rust, method, id=f"rust-{method}") for method in methods_of_rust]
    return libev + rust

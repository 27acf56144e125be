"""Ordinary programs at both ends of a relay."""

import asyncio
import contextlib
import functools
import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from watm_test_support import pattern

from .cases import loads
from .ends import HOST, LIMIT
from .modules import Module
from .tools import Tool

SIZES = (0, 1, 100_000, 5_000_000)


@loads(own=True, plain=True)
async def test_curl_fetches_pages_through_a_relay(tool: Tool, module: Module, tmp_path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    for size in SIZES:
        pieces = (pattern.piece(offset, min(65536, size - offset)) for offset in range(0, size, 65536))
        (site / str(size)).write_bytes(b"".join(pieces))
    with web_server(site) as address:
        async with tool.relay(module, address) as running:
            # One connection for all.
            wanted = [f"http://{running.address}/{size}" for size in SIZES]
            await run(["curl", "-sSf", "--output-dir", tmp_path, "--remote-name-all", *wanted])
    for size in SIZES:
        assert (tmp_path / str(size)).read_bytes() == (site / str(size)).read_bytes()


@loads(own=True, plain=True)
async def test_openssl_speaks_tls_through_a_relay(tool: Tool, module: Module, tmp_path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost", "-days", "1"]
    await run(["openssl", "req", "-x509", *new, "-keyout", key, "-out", certificate])
    served = ["s_server", "-accept", f"{HOST}:0", "-cert", certificate, "-key", key, "-rev"]
    server = await asyncio.create_subprocess_exec("openssl", *served, stdout=subprocess.PIPE)
    try:
        async with asyncio.timeout(LIMIT):
            # "ACCEPT 127.0.0.1:port"
            while not (line := await server.stdout.readline()).startswith(b"ACCEPT"):
                assert line, "openssl s_server has ended"
        async with tool.relay(module, line.split()[1].decode()) as running:
            client = ["s_client", "-connect", running.address, "-CAfile", certificate, "-verify_return_error", "-quiet"]
            speaker = await asyncio.create_subprocess_exec(
                "openssl", *client, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            speaker.stdin.write(b"hello\n")
            async with asyncio.timeout(LIMIT):
                assert await speaker.stdout.readline() == b"olleh\n"
            speaker.kill()
            await speaker.wait()
    finally:
        server.kill()
        await server.wait()


async def run(command: list[str | Path]) -> None:
    """Runs a program, which must succeed."""
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    async with asyncio.timeout(LIMIT):
        _, said = await process.communicate()
    assert process.returncode == 0, said


@contextlib.contextmanager
def web_server(folder: Path) -> Iterator[str]:
    """Serves a folder over HTTP/1.1 in a thread."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer((HOST, 0), functools.partial(Handler, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

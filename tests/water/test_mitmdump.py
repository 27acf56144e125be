"""curl with `watm dial`, and mitmdump with a WATER module as its mode."""

import asyncio
import contextlib
import pathlib
import re
import sys
from collections.abc import AsyncIterator

import pytest

from .ends import HOST, LIMIT
from .modules import own, shipped
from .test_programs import run, web_server
from .tools import WATM, Running

MITMDUMP = pathlib.Path(sys.executable).parent / "mitmdump-watm"
MODULES = [module for module in [*own(), *shipped()] if module.name in ("own-plain", "v0-plain-go")]


@pytest.mark.parametrize("module", MODULES, ids=str)
async def test_curl_fetches_a_page_through_the_mode(module, tmp_path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "page").write_bytes(b"a page of the site" * 1000)
    with web_server(site) as upstream:
        async with mitmdump(f"watm:{module.path}?to=http://{upstream}@{HOST}:0", tmp_path) as (port, proxy):
            async with WATM._serve(["dial", "--unsealed", module.path, f"{HOST}:{port}", "--listen", f"{HOST}:0"]) as dialling:
                fetched = tmp_path / "fetched"
                await run(["curl", "-sSf", "-o", fetched, f"http://{dialling.address}/page"])
                assert fetched.read_bytes() == (site / "page").read_bytes()
                await proxy.wait_for(lambda said: f"GET http://{upstream}/page" in said, "the flow")


async def test_tls_is_intercepted_through_the_mode(tmp_path) -> None:
    module = own()[0]
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost", "-days", "1"]
    await run(["openssl", "req", "-x509", *new, "-keyout", key, "-out", certificate])
    served = ["s_server", "-accept", f"{HOST}:0", "-cert", certificate, "-key", key, "-www"]
    server = await asyncio.create_subprocess_exec("openssl", *served, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(LIMIT):
            while not (line := await server.stdout.readline()).startswith(b"ACCEPT"):
                assert line, "openssl s_server has ended"
        upstream = line.split()[1].decode()
        mode = f"watm:{module.path}?to={upstream}@{HOST}:0"
        async with mitmdump(mode, tmp_path, "--set", "ssl_insecure=true") as (port, proxy):
            async with WATM._serve(["dial", "--unsealed", module.path, f"{HOST}:{port}", "--listen", f"{HOST}:0"]) as dialling:
                local = dialling.address.rpartition(":")[2]
                ca = tmp_path / "mitmproxy-ca-cert.pem"
                fetch = ["--cacert", ca, "--resolve", f"site.example:{local}:{HOST}"]
                await run(["curl", "-sSf", "-o", tmp_path / "fetched", *fetch, f"https://site.example:{local}/"])
                assert "s_server" in (tmp_path / "fetched").read_text()
                await proxy.wait_for(lambda said: "GET https://" in said, "the flow")
    finally:
        server.kill()
        await server.wait()


@contextlib.asynccontextmanager
async def mitmdump(mode: str, confdir: pathlib.Path, *arguments: str) -> AsyncIterator[tuple[int, Running]]:
    """Runs mitmdump with this mode. Yields it with the port of its server."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        'exec "$@" >&2',
        "sh",
        MITMDUMP,
        "--set",
        f"confdir={confdir}",
        "--set",
        "watm_unsealed=true",
        "--mode",
        mode,
        *arguments,
        stderr=asyncio.subprocess.PIPE,
    )
    running = Running(process)
    try:
        said = await running.wait_for(re.compile(r"server listening at .*:(\d+)").search, "an address")
        yield int(said[1]), running
    finally:
        await running.stop()

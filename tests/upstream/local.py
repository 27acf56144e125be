"""The program that `test_local.py` runs in separate namespaces."""

import asyncio
import contextlib
import os
import pathlib
import sys
from collections.abc import AsyncIterator

from watm_test_support import mitmproxy_programs

from .ends import INSIDE, LIMIT, curl, upstream, vpn, written


async def main(folder: pathlib.Path) -> None:
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    async with vpn() as config:
        async with intercepting(folder, config) as program:
            assert await tried(program) == (0, "inside")
        async with intercepting(folder, config + "AllowedApps = curl\n") as program:
            _, page = await tried(program)
            assert "inside" not in page
            async with asyncio.timeout(LIMIT):
                await program.wait_for("not allowed through wireguard: has rules for applications")


@contextlib.asynccontextmanager
async def intercepting(folder: pathlib.Path, config: str) -> AsyncIterator[mitmproxy_programs.Program]:
    """Runs mitmdump in local mode, with this tunnel."""
    conf = written(folder, "wg0.conf", config)
    options = ["--mode", "local:curl", *upstream(f"wireguard?config={conf}")]
    async with mitmproxy_programs.start("mitmdump-watm", folder, *options, observed=False) as program:
        async with asyncio.timeout(LIMIT):
            await program.wait_for("redirector started")
        yield program


async def tried(program: mitmproxy_programs.Program) -> tuple[int, str]:
    """Returns the status and output of a curl without proxy settings."""
    async with asyncio.timeout(LIMIT):
        while True:
            # The helper learns the programs after its start, and does not report when it has.
            code, page = await curl("--max-time", "2", f"http://{INSIDE}/")
            if "client connect" in program.text:
                return code, page


asyncio.run(main(pathlib.Path(sys.argv[1])))

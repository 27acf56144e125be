"""`make screenshot`: a picture of mitmweb's page in a real browser, with a real client's traffic."""

import asyncio
import contextlib
import math
import sys
import tempfile
from pathlib import Path

from PIL import Image

from watm_test_support.browser import browser
from watm_test_support.mitmproxy_programs import client
from watm_test_support.mitmweb import start_web
from watm_test_support.wgclient import WgClient

# The width in CSS pixels. The page determines the height.
WIDTH, HEIGHT = 1000, 760
# The width of the picture, which is smaller than the page.
SHOWN = 840
COLOURS = 200
# Seconds of traffic in the graphs.
SECONDS = 100
TIMEOUT = 180

MODE = "watm:wireguard@127.0.0.1:51820"


async def upload(tunnel: WgClient, size: int) -> None:
    """Sends mitmproxy a request with a body of this many bytes."""
    async with tunnel.tcp("10.9.8.7:80") as connection:
        await connection.write(f"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {size}\r\n\r\n".encode() + bytes(size))
        await connection.read()


async def use(tunnel: WgClient) -> None:
    """Makes traffic that rises and falls, and opens and closes flows."""
    async with contextlib.AsyncExitStack() as flows:
        for moment in range(SECONDS * 4):
            await upload(tunnel, 20_000 + round(60_000 * (1 + math.sin(moment / 9)) * (1 + math.sin(moment / 3.7) / 2)))
            if moment % 16 == 0:
                await flows.enter_async_context(tunnel.tcp("10.9.8.7:80"))
            await asyncio.sleep(0.25)


async def take(file: Path, folder: Path) -> None:
    """Makes traffic in a tunnel, and writes the picture."""
    async with start_web(folder, "--mode", MODE) as (program, link), browser() as window:
        await window.resize(WIDTH, HEIGHT)
        await window.prefer("light")
        await window.open(link)
        async with client(folder, await program.port()) as inside:
            using = asyncio.create_task(use(inside))
            await asyncio.sleep(SECONDS)
            await window.resize(WIDTH, await window.run("return document.documentElement.scrollHeight"))
            shown = (await window.screenshot()).convert("RGB")
            using.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await using
    # The keys are new and not used again.
    height = round(shown.height * SHOWN / shown.width)
    shown.resize((SHOWN, height), Image.Resampling.LANCZOS).quantize(COLOURS, Image.Quantize.FASTOCTREE).save(file, optimize=True)
    print(f"{file}: {file.stat().st_size} bytes")


def main() -> None:
    """Writes the picture to the file that the argument names."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(asyncio.wait_for(take(Path(sys.argv[1]), Path(folder)), TIMEOUT))


if __name__ == "__main__":
    main()

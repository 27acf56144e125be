"""`make screenshot`: mitmweb's page with a real client's traffic, as a real browser shows it."""

import asyncio
import base64
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from watm_test_support.browser import Browser, browser
from watm_test_support.mitmproxy_programs import client
from watm_test_support.mitmweb import start_web

# CSS pixels; the height is the page's.
WIDTH, HEIGHT = 1000, 760
# Of the picture, which is smaller than the page.
SHOWN = 720
COLOURS = 32
TIMEOUT = 120

MODE = "watm:wireguard@127.0.0.1:51820"


async def picture(window: Browser) -> Image.Image:
    """The window in colour."""
    return Image.open(io.BytesIO(base64.b64decode(await window._do("GET", "/screenshot", None))))


async def take(file: Path, folder: Path) -> None:
    """Fetch a page through the tunnel and write the picture of the page that shows it."""
    async with start_web(folder, "--mode", MODE) as (program, link), browser() as window:
        await window.resize(WIDTH, HEIGHT)
        await window.open(link)
        async with client(folder, await program.port()) as inside:
            await inside.do("http", url="http://10.9.8.7/")
            await window.wait_until("document.querySelector('table').innerText.includes('s ago')")
            await window.resize(WIDTH, await window.run("return document.documentElement.scrollHeight"))
            shown = (await picture(window)).convert("RGB")
    # Keys that were made a moment ago and are gone: nobody's.
    height = round(shown.height * SHOWN / shown.width)
    shown.resize((SHOWN, height), Image.Resampling.LANCZOS).quantize(COLOURS).save(file, optimize=True)
    print(f"{file}: {file.stat().st_size} bytes")


def main() -> None:
    """The argument is the file."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(asyncio.wait_for(take(Path(sys.argv[1]), Path(folder)), TIMEOUT))


if __name__ == "__main__":
    main()

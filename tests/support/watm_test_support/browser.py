"""A real Chromium, driven by the WebDriver protocol (https://www.w3.org/TR/webdriver2/)."""

import asyncio
import base64
import contextlib
import io
import json
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

from PIL import Image

from watm_test_support.ports import free_port


class Browser:
    """A browser window."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self, url: str) -> None:
        """Opens a page and waits until it is loaded."""
        await self._do("POST", "/url", {"url": url})

    async def run(self, script: str) -> Any:
        """Returns the value of a JavaScript function body."""
        return await self._do("POST", "/execute/sync", {"script": script, "args": []})

    async def wait_until(self, expression: str) -> Any:
        """Waits until an expression is true, and returns its value."""
        while not (value := await self.run(f"return {expression}")):
            await asyncio.sleep(0.05)
        return value

    async def click(self, xpath: str) -> None:
        """Clicks as a user does, once the element exists."""
        while not (found := await self._do("POST", "/elements", {"using": "xpath", "value": xpath})):
            await asyncio.sleep(0.05)
        (element,) = found[0].values()
        await self._do("POST", f"/element/{element}/click", {})

    async def resize(self, width: int, height: int) -> None:
        """Shows pages as a screen of this size does, which may be smaller than a window can be."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self._do("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})

    async def screenshot(self) -> Image.Image:
        """Returns an image of the page."""
        return Image.open(io.BytesIO(base64.b64decode(await self._do("GET", "/screenshot", None)))).convert("L")

    async def complaints(self) -> list[str]:
        """Returns errors in the browser's console, such as breaches of the security policy."""
        return [entry["message"] for entry in await self._do("POST", "/se/log", {"type": "browser"})]

    async def _do(self, method: str, path: str, content: Any) -> Any:
        return await asyncio.to_thread(_request, method, self._url + path, content)


@contextlib.asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Opens a window of 1200 by 1600 pixels until the block ends."""
    port = free_port()
    driver = await asyncio.create_subprocess_exec(
        "chromedriver", f"--port={port}", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    root = f"http://127.0.0.1:{port}"
    options = {
        "browserName": "chrome",
        # Containers have neither the privileges of the sandbox nor much shared memory.
        "goog:chromeOptions": {
            "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,1600"]
        },
        "goog:loggingPrefs": {"browser": "WARNING"},
    }
    try:
        while True:
            with contextlib.suppress(OSError):
                if (await asyncio.to_thread(_request, "GET", f"{root}/status", None))["ready"]:
                    break
            await asyncio.sleep(0.05)
        session = await asyncio.to_thread(
            _request, "POST", f"{root}/session", {"capabilities": {"alwaysMatch": options}}
        )
        url = f"{root}/session/{session['sessionId']}"
        try:
            yield Browser(url)
        finally:
            # The driver alone would leave the browser running.
            await asyncio.to_thread(_request, "DELETE", url, None)
    finally:
        driver.terminate()
        await driver.wait()


def _request(method: str, url: str, content: Any) -> Any:
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)["value"]

"""A real Chromium, driven by the WebDriver protocol (https://www.w3.org/TR/webdriver2/)."""

import asyncio
import base64
import contextlib
import io
import json
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from PIL import Image

from watm_test_support.ports import free_port


KEYS = {"TAB": "\ue004", "ENTER": "\ue007", "SPACE": " "}
"""Keys by name, with their code points (https://www.w3.org/TR/webdriver2/#keyboard-actions)."""


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

    async def run_async(self, script: str) -> Any:
        """Returns the value that an asynchronous JavaScript function body returns."""
        wrapped = f"const done = arguments[0]; (async () => {{ {script} }})().then(done, (error) => done(String(error)))"
        return await self._do("POST", "/execute/async", {"script": wrapped, "args": []})

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

    async def choose(self, selector: str, path: Path) -> None:
        """Chooses a file in the first file picker that a CSS selector finds."""
        (element,) = (await self._do("POST", "/element", {"using": "css selector", "value": selector})).values()
        await self._do("POST", f"/element/{element}/value", {"text": str(path)})

    async def type(self, xpath: str, text: str) -> None:
        """Types into a field, behind its text. A line feed is the Enter key."""
        (element,) = (await self._do("POST", "/element", {"using": "xpath", "value": xpath})).values()
        await self._do("POST", f"/element/{element}/value", {"text": text})

    async def press(self, *keys: str) -> None:
        """Presses keys one after another, by their names in WebDriver, such as TAB."""
        presses = [{"type": kind, "value": KEYS[key]} for key in keys for kind in ("keyDown", "keyUp")]
        await self._do("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": presses}]})

    async def allow(self, *permissions: str) -> None:
        """Grants the open page permissions that a user would be asked for (https://www.w3.org/TR/permissions/#automation)."""
        for name in permissions:
            await self._do("POST", "/permissions", {"descriptor": {"name": name}, "state": "granted"})

    async def download_to(self, folder: Path) -> None:
        """Saves downloads in a folder."""
        parameters = {"behavior": "allow", "downloadPath": str(folder)}
        await self._do("POST", "/goog/cdp/execute", {"cmd": "Browser.setDownloadBehavior", "params": parameters})

    async def prefer(self, scheme: str) -> None:
        """Prefers the colour scheme "light" or "dark"."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self._do("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}})

    async def resize(self, width: int, height: int) -> None:
        """Shows pages as a screen of this size does, which may be smaller than a window can be."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self._do("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})

    async def screenshot(self) -> Image.Image:
        """Returns an image of the page."""
        return Image.open(io.BytesIO(base64.b64decode(await self._do("GET", "/screenshot", None))))

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

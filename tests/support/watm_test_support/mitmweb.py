"""mitmweb as a process, and a client of its pages."""

import asyncio
import contextlib
import http.cookiejar
import json
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import mitmproxy.version

from watm_test_support.mitmproxy_programs import Program, start
from watm_test_support.ports import free_port

HAS_LOGIN = int(mitmproxy.version.VERSION.partition(".")[0]) >= 12


@dataclass
class Answer:
    status: int
    text: str
    headers: Any


class Visitor:
    """A browser without a screen: keeps cookies, and sends mitmweb's XSRF token."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))

    async def get(self, path: str, **headers: str) -> Answer:
        return await asyncio.to_thread(self._fetch, "GET", path, None, **headers)

    async def put(self, path: str, content: Any) -> Answer:
        return await asyncio.to_thread(self._fetch, "PUT", path, content)

    async def post(self, path: str, content: Any) -> Answer:
        return await asyncio.to_thread(self._fetch, "POST", path, content)

    async def post_bytes(self, path: str, content: bytes) -> Answer:
        return await asyncio.to_thread(self._fetch, "POST", path, content, **{"Content-Type": "application/wasm"})

    async def begin(self, path: str, headers: dict[str, str], body: bytes = b"") -> str:
        """Sends a POST that need not be whole, and returns the answer."""
        address = urlsplit(self.url)
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.cookies)
        headers = {"Host": address.netloc, "Cookie": cookies, "X-XSRFToken": self._token or "", "Connection": "close"} | headers
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
            writer.write("\r\n".join(lines).encode() + body)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            return (head + await reader.readexactly(int(length.group(1)) if length else 0)).decode()
        finally:
            writer.close()

    @property
    def _token(self) -> str | None:
        return next((cookie.value for cookie in self.cookies if cookie.name.endswith("_xsrf")), None)

    def _fetch(self, method: str, path: str, content: Any, **headers: str) -> Answer:
        if content is not None and not isinstance(content, bytes):
            headers["Content-Type"] = "application/json"
            content = json.dumps(content).encode()
        if self._token and method != "GET":
            headers["X-XSRFToken"] = self._token
        request = urllib.request.Request(self.url + path, content, headers, method=method)
        try:
            with self._opener.open(request, timeout=10) as response:
                return Answer(response.status, response.read().decode(errors="replace"), response.headers)
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode(), error.headers)


@contextlib.asynccontextmanager
async def start_web(confdir: Path, *arguments: str, program: str = "mitmweb-watm") -> AsyncIterator[tuple[Program, str]]:
    """Runs mitmweb. Yields it with the address of the page in its log."""
    web = ("--set", f"web_port={free_port()}", "--set", "web_open_browser=false")
    async with start(program, confdir, *web, *arguments) as running:
        link = await running.wait_for(r"QR codes: (http://\S+)")
        yield running, link.group(1)


async def log_in(link: str) -> Visitor:
    """Follows the link in the log."""
    url, _, query = link.partition("/watm")
    visitor = Visitor(url)
    assert (await visitor.get(f"/watm{query}")).status == 200
    for path in ("/", "/updates"):  # a browser gets the XSRF cookie of mitmweb 11 and 12 here
        await visitor.get(path)
    return visitor

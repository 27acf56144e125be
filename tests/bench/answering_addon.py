"""An addon that reports when mitmdump serves, and answers every request itself."""

import asyncio
import json

from mitmproxy import ctx, http

BODY = b"x" * 1000


class Answering:
    async def running(self) -> None:
        servers = ctx.master.addons.get("proxyserver").servers
        while not any(server.is_running for server in servers):
            await asyncio.sleep(0.05)
        print(json.dumps({"serving": True}), flush=True)

    def request(self, flow: http.HTTPFlow) -> None:
        flow.response = http.Response.make(200, BODY)


addons = [Answering()]

"""An addon that reports when mitmdump serves."""

import asyncio
import json

from mitmproxy import ctx


class Serving:
    async def running(self) -> None:
        servers = ctx.master.addons.get("proxyserver").servers
        while not any(server.is_running for server in servers):
            await asyncio.sleep(0.05)
        print(json.dumps({"serving": True}), flush=True)


addons = [Serving()]

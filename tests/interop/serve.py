"""A server in a process of its own: `python serve.py < CONFIGURATION`.

Prints the port and serves the services of the interop tests until it is terminated.
"""

import asyncio
import sys

import mitmproxy_watm
from watm_test_support import web_services


async def main() -> None:
    async with await mitmproxy_watm.start_server(
        "wireguard",
        "127.0.0.1",
        0,
        config=sys.stdin.read(),
        handle_tcp_stream=web_services.handle_tcp,
        handle_udp_stream=web_services.handle_udp,
    ) as server:
        print(server.getsockname()[1], flush=True)
        await asyncio.Event().wait()


asyncio.run(main())

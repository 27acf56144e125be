"""A server in a process of its own: `python serve.py < CONFIGURATION`.

Prints the port and serves the interop tests' services until it is told to end.
"""

import asyncio
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "bench")]

import mitmproxy_watm  # noqa: E402
import services  # noqa: E402


async def main() -> None:
    async with await mitmproxy_watm.start_server(
        "wireguard",
        "127.0.0.1",
        0,
        config=sys.stdin.read(),
        handle_tcp_stream=services.handle_tcp,
        handle_udp_stream=services.handle_udp,
    ) as server:
        print(server.getsockname()[1], flush=True)
        await asyncio.Event().wait()


asyncio.run(main())

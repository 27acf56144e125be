"""A server for a TUN device and another one, in one process: `python serve_device.py DEVICE`.

Both echo. Prints the port of the other one, and answers each line of standard input with the state of both, as JSON.
"""

import asyncio
import json
import logging
import sys
import time

import mitmproxy_watm


async def echo(stream: mitmproxy_watm.Stream) -> None:
    """Sends everything back."""
    try:
        while data := await stream.read(65536):
            stream.write(data)
            await stream.drain()
    except OSError:
        pass
    finally:
        stream.close()


async def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    handlers = {"handle_tcp_stream": echo, "handle_udp_stream": echo}
    async with (
        await mitmproxy_watm.start_server("tun", None, 0, device=sys.argv[1], **handlers) as device,
        await mitmproxy_watm.start_server("plain", "127.0.0.1", 0, handle_tcp_stream=echo) as other,
    ):
        print(other.getsockname()[1], flush=True)
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            stats = device.stats()
            state = {
                "cpu": time.process_time(),
                "calls": stats["host.process_calls"],
                **{
                    f"{what}_{way}": stats[f"host.{what}_{way}"]
                    for what in ("packets", "bytes")
                    for way in ("received", "sent")
                },
                "restarts": stats["host.restarts"] + other.stats()["host.restarts"],
                "flows": device.status().flows,
                "opened": stats["host.flows_opened"],
            }
            print(json.dumps(state), flush=True)


asyncio.run(main())

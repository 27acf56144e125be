"""The process under test: a WireGuard server for careless handlers, and beside it a module that
fails on command.

`python server.py < CONFIGURATION`, a line of JSON. Prints both ports as a line of JSON and answers
each further line with the resources of both.
"""

import asyncio
import datetime
import json
import logging
import sys

import mitmproxy_watm
from watm_test_support import careless, module_files

HOST = "127.0.0.1"
# A small limit, so that a failure comes soon and costs little.
LIMITS = mitmproxy_watm.Limits(memory_bytes=32 << 20, cpu_per_call=datetime.timedelta(milliseconds=100))


async def main() -> None:
    # Handlers and the guest fail all the time, so the log omits these failures.
    logging.getLogger("mitmproxy_watm").addHandler(logging.NullHandler())
    logging.getLogger("mitmproxy_watm").propagate = False
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    config = json.loads(await reader.readline())
    handlers = {"handle_tcp_stream": careless.handle_tcp, "handle_udp_stream": careless.handle_udp}
    async with (
        await mitmproxy_watm.start_server("wireguard", HOST, 0, config=config, **handlers) as server,
        await mitmproxy_watm.start_server(module_files.GUEST, HOST, 0, limits=LIMITS, unsealed=True, **handlers) as guest,
    ):
        _say({"server": server.getsockname()[1], "guest": guest.getsockname()[1]})
        while await reader.readline():
            status = server.status()
            _say(
                {
                    "flows": status.flows,
                    "generation": status.generation,
                    "counters": status.counters,
                    "guest_restarts": guest.stats()["host.restarts"],
                    "tasks": len(asyncio.all_tasks()),
                }
            )


def _say(what: dict) -> None:
    print(json.dumps(what), flush=True)


asyncio.run(main())

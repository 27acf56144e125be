"""One server under test: `python -m tests.bench.server KIND [MTU]`.

Prints a line of JSON with its address and keys, and serves until its input ends. It answers each
line of input with its counters, a line of JSON.
"""

import asyncio
import json
import os
import sys
from typing import Any, NoReturn

from watm_test_support import services

from . import device, environment, networks, plain

HOST = "127.0.0.1"


async def main(kind: str, mtu: int) -> None:
    if kind == "plain":
        server, reach = None, {"direct": True, "ports": await plain.start(HOST)}
    elif kind.startswith("tun-"):
        server, reach = await device.start(kind, mtu), {"direct": True, "network": os.getpid()}
    else:
        server, reach = await _wireguard(kind)
    _say(reach)
    await _serve(getattr(server, "stats", None))


async def _wireguard(kind: str) -> tuple[Any, dict]:
    """Starts a server, and returns it with its address and the keys."""
    own, first, second = (environment.key_pair() for _ in range(3))
    peers = [first.public, second.public]
    keys = (HOST, 0, own.private, peers, services.handle_tcp, services.handle_udp)
    if kind == "native":
        from mitmproxy_rs import wireguard

        server = await wireguard.start_wireguard_server(*keys)
    elif kind == "watm":
        from mitmproxy_watm import wireguard

        server = await wireguard.start_wireguard_server(*keys)
    elif kind == "watm-own-aead":
        server = await _with_own_aead(own.private, peers)
    else:
        raise SystemExit(f"{kind!r} is not a kind of server")
    return server, {
        "direct": False,
        "server": f"{HOST}:{server.getsockname()[1]}",
        "private_key": first.private,
        "second_private_key": second.private,
        "peer_public_key": own.public,
    }


async def _with_own_aead(private: str, peers: list[str]) -> Any:
    """Starts the module without the host's cipher."""
    import mitmproxy_watm

    return await mitmproxy_watm.start_server(
        "wireguard",
        HOST,
        0,
        config=json.dumps({"server_key": private, "peer_public_keys": peers}),
        handle_tcp_stream=services.handle_tcp,
        handle_udp_stream=services.handle_udp,
        host_crypto=False,
    )


async def _serve(stats) -> NoReturn:
    """Answers lines of input until they end, and ends the process."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        _say(stats() if stats else {})
    # Exits at once: mitmproxy_rs sometimes crashes during the interpreter's shutdown, which is not
    # measured here.
    os._exit(0)


def _say(what: dict) -> None:
    print(json.dumps(what, default=str), flush=True)


asyncio.run(main(sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else networks.MTU))

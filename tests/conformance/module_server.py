"""The WireGuard transport in its sandbox: does through the module what `native/` does without it.

It echoes every flow and prints each as a line of JSON when it ends, like the native program.
"""

import argparse
import asyncio
import json
import zlib
from pathlib import Path

import mitmproxy_watm


def address(value: tuple) -> str:
    host, port = value[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def echo(stream: mitmproxy_watm.Stream) -> None:
    checksum, total, datagrams, end = 0, 0, 0, "dropped"
    kind = stream.get_extra_info("transport_protocol")
    try:
        while True:
            data = await stream.read(65536)
            if not data and stream.at_eof():
                break
            checksum = zlib.crc32(data, checksum)
            total += len(data)
            datagrams += kind == "udp"
            stream.write(data)
            await stream.drain()
        if kind == "tcp":
            end = "end"
            stream.write_eof()
            await stream.drain()
    except ConnectionResetError:
        end = "reset"
    finally:
        stream.close()
        record = {
            "event": "flow",
            "kind": kind,
            "source": address(stream.get_extra_info("peername")),
            "destination": address(stream.get_extra_info("sockname")),
            "peer": stream.get_extra_info("peer"),
            "bytes": total,
            "crc32": checksum,
            "datagrams": datagrams,
            "end": end,
        }
        print(json.dumps(record), flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", required=True, help="address:port; port 0 takes a free one, which is printed")
    parser.add_argument("--config", required=True, type=Path)
    arguments = parser.parse_args()
    host, _, port = arguments.listen.rpartition(":")
    server = await mitmproxy_watm.start_server(
        "wireguard",
        host,
        int(port),
        config=arguments.config.read_bytes(),
        handle_tcp_stream=echo,
        handle_udp_stream=echo,
    )
    print(json.dumps({"event": "listening", "port": server.getsockname()[1]}), flush=True)
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(main())

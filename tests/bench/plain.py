"""The same services on loopback without any tunnel: the cost of asyncio itself."""

import asyncio

from watm_test_support import services


class _Stream:
    """A reader and a writer as one stream that reports a service's port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self.read = reader.read
        self.write = writer.write
        self.drain = writer.drain
        self.write_eof = writer.write_eof
        self.close = writer.close
        self._port = port

    def get_extra_info(self, name: str):
        return ("127.0.0.1", self._port) if name == "sockname" else None


class _UdpEcho(asyncio.DatagramProtocol):
    def connection_made(self, transport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address) -> None:
        self._transport.sendto(data, address)


async def start(host: str) -> dict[str, int]:
    """Serves each service at a port of its own, and returns the ports by service."""
    ports = {}
    for service in (services.ECHO, services.SINK, services.SOURCE):

        async def serve(reader, writer, service=service) -> None:
            await services.handle_tcp(_Stream(reader, writer, service))

        server = await asyncio.start_server(serve, host, 0)
        ports[f"tcp{service}"] = server.sockets[0].getsockname()[1]
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(_UdpEcho, (host, 0))
    ports[f"udp{services.ECHO}"] = transport.get_extra_info("sockname")[1]
    return ports

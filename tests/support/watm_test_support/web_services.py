"""The servers inside the tunnel: those of `services`, and a web page."""

from watm_test_support import services

HTTP = 80
PAGE = b"a page from inside the tunnel\n"


async def handle_tcp(stream) -> None:
    if stream.get_extra_info("sockname")[1] == HTTP:
        await _page(stream)
    else:
        await services.handle_tcp(stream)


handle_udp = services.handle_udp


async def _page(stream) -> None:
    """Answers GET with the page, and PUT with the number of received bytes."""
    head = await stream.readuntil(b"\r\n\r\n")
    body = PAGE
    if head.startswith(b"PUT"):
        fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n") if b": " in line)
        if b"expect" in fields:
            stream.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        received = await stream.readexactly(int(fields[b"content-length"]))
        body = str(len(received)).encode()
    stream.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await stream.drain()
    stream.close()

"""Connections that end without a close_notify or a FIN."""

import asyncio
import errno
import socket
import ssl
import time

import pytest

from watm_test_support.certificates import Authority, Leaf

from .peers import HOST, LIMIT, WATER, listen, serve

DATA = b"x" * 50_000


def read_all(listener: socket.socket, late: float) -> tuple[bytes, int | None]:
    """Returns the data that a slow reader gets, and the error after it."""
    connection, _ = listener.accept()
    time.sleep(late)
    come = b""
    with connection:
        connection.settimeout(LIMIT)
        try:
            while data := connection.recv(1000):
                come += data
        except OSError as e:
            return come, e.errno
    return come, None


@pytest.mark.parametrize("late", [0, 0.3])
@pytest.mark.parametrize("program", ["listen", "serve", "water"])
async def test_what_came_before_is_passed_on_and_then_the_error(
    program, late, authority: Authority, localhost: Leaf, tmp_path
) -> None:
    with socket.create_server((HOST, 0)) as listener:
        to = listener.getsockname()[1]
        reading = asyncio.get_running_loop().run_in_executor(None, read_all, listener, late)
        ours = {
            "listen": lambda: listen(localhost.pem, to, tmp_path),
            "serve": lambda: serve(localhost.pem, to, tmp_path),
            "water": lambda: listen(localhost.pem, to, tmp_path, module=WATER),
        }[program]
        async with ours() as port:
            context = ssl.create_default_context(cadata=authority.pem)
            _, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname="localhost")
            writer.write(DATA)
            await writer.drain()
            # The connection below TLS ends without a close_notify.
            writer.transport.abort()
            come, error = await asyncio.wait_for(reading, LIMIT)
    assert come == DATA
    assert error == errno.ECONNRESET

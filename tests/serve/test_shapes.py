"""Strangers at a component and a WATER module: the refusal that they see, and the upstream, which must not notice."""

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from watm_test_support.repository import MODULES
from watm_test_support.watm_serve import HOST, LIMIT, connect, serving

SHAPES = pytest.mark.parametrize("shape", [".wasm", ".watm1.wasm"])

HEADER = b"PROXY TCP4 203.0.113.9 198.51.100.1 1234 443\r\n"


@contextlib.contextmanager
def upstream() -> Iterator[tuple[int, list[bytes]]]:
    """Runs an echo server. Yields its port, and the first data of each connection."""
    said = []

    def serve(near: socket.socket) -> None:
        at = len(said)
        said.append(b"")
        with near, contextlib.suppress(OSError):
            while data := near.recv(65536):
                said[at] = said[at] or data
                near.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()

    with socket.create_server((HOST, 0), backlog=256) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], said
        listener.shutdown(socket.SHUT_RDWR)


def config(module: str, to: int, more: str = "", limits: str = "") -> str:
    return f"""
[logs]
level = "debug"
[[listener]]
module = "{MODULES / module}"
addresses = ["tcp://0.0.0.0:0"]
upstream = "{HOST}:{to}"
{more}
[listener.limits]
{limits}
"""


def proxy(shape: str, to: int) -> str:
    return config("proxy-protocol" + shape, to, "config = '''from = \"any\"'''")


def exchanges(stream: socket.socket, data: bytes, answer: bytes) -> None:
    stream.sendall(data)
    assert stream.recv(len(answer), socket.MSG_WAITALL) == answer


@SHAPES
def test_an_upstream_hears_of_a_client_when_its_header_has_come(shape, tmp_path):
    with (
        upstream() as (to, said),
        serving(tmp_path, proxy(shape, to)) as running,
        connect(running.port),
        connect(running.port) as slow,
    ):
        slow.sendall(HEADER[:10])
        for _ in range(5):
            with connect(running.port) as good:
                exchanges(good, HEADER + b"hello", b"hello")
        assert said == [b"hello"] * 5
        exchanges(slow, HEADER[10:] + b"later", b"later")
        assert said == [b"hello"] * 5 + [b"later"]


@SHAPES
def test_a_client_without_a_header_sees_a_reset_and_the_log_says_why(shape, tmp_path):
    with upstream() as (to, said), serving(tmp_path, proxy(shape, to)) as running:
        with connect(running.port) as junk:
            junk.sendall(b"GET / HTTP/1.0\r\n\r\n")
            with pytest.raises(ConnectionResetError):
                junk.recv(1)
            client = re.escape(f"{HOST}:{junk.getsockname()[1]}")
        running.wait_for(rf"^(?=.*\b{client}\b).*it does not begin with a PROXY protocol header")
        assert said == []


@SHAPES
def test_silent_connections_count_for_their_client_and_make_way(shape, tmp_path):
    (tmp_path / "server.json").write_text('{"method": "aes-256-gcm", "password": "geheim"}')
    text = config("shadowsocks" + shape, 9, 'config-file = "server.json"', "connections-per-client = 3")
    with serving(tmp_path, text) as running, contextlib.ExitStack() as stack:
        oldest = [stack.enter_context(connect(running.port)) for _ in range(5)]
        # The order of acceptance of simultaneous connections is undefined.
        time.sleep(0.5)
        silent = oldest + [stack.enter_context(connect(running.port)) for _ in range(3)]
        end = time.monotonic() + LIMIT
        closed = []
        while len(closed) < 5:
            assert time.monotonic() < end
            time.sleep(0.05)
            for stream in [each for each in silent if each not in closed]:
                stream.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    assert stream.recv(1) == b""
                    closed.append(stream)
        assert set(closed) == set(oldest)

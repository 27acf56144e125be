"""The PROXY protocol with haproxy and nginx as proxies."""

import contextlib
import pathlib
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from watm_test_support.haproxy import configured

from .namespace import LIMIT, Namespace, namespace
from .serving import PORT, UPSTREAM, serving

HOST = "127.0.0.1"
FRONT = 6000
SENT = bytes(range(256)) * 4096

HAPROXY = """
frontend in
    bind {host}:{front}
    unique-id-format request-%ci
    tcp-request connection set-src str(192.0.2.7)
    tcp-request connection set-src-port int(5555)
    default_backend out
backend out
    server one {host}:{port} {words}
"""

NGINX = """
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
stream {{
    server {{
        listen {host}:{front};
        proxy_pass {host}:{port};
        proxy_protocol on;
        proxy_half_close on;
    }}
}}
"""


@pytest.fixture(scope="module")
def inside():
    with namespace() as made:
        made.bring_answers_back()
        yield made


@contextlib.contextmanager
def peer(inside: Namespace, *command) -> Iterator[None]:
    """Runs the proxy for the length of the block, once it listens."""
    process = subprocess.Popen(inside.command(*command), stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + LIMIT
        while True:
            with contextlib.suppress(ConnectionError), inside.connected(HOST, FRONT):
                break
            assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
            assert time.monotonic() < end, f"{command[0]} does not listen"
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(LIMIT)


def talk(inside: Namespace, client: str | None) -> None:
    """Echoes through the proxy and the server. The upstream sees this client's address."""
    with inside.bound(HOST, UPSTREAM, socket.SOCK_STREAM) as upstream:
        # Probes for the proxy's port may reach the upstream too.
        time.sleep(0.05)
        with inside.connected(HOST, FRONT) as near:
            near.sendall(b"hello")
            end = time.monotonic() + LIMIT
            while time.monotonic() < end:
                far, seen = upstream.accept()
                # The end of a probe may be a reset.
                with contextlib.suppress(ConnectionResetError):
                    if far.recv(5) == b"hello":
                        break
                far.close()
            assert seen[0] == (client or HOST)
            near.sendall(SENT)
            near.shutdown(socket.SHUT_WR)
            assert b"".join(iter(lambda: far.recv(1 << 20), b"")) == SENT
            far.sendall(b"answer")
            far.close()
            assert near.recv(6) == b"answer"
            assert near.recv(1) == b""


@pytest.mark.parametrize(
    "words", ["send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c,unique-id", "send-proxy-v2-ssl"]
)
def test_haproxy(inside, tmp_path: pathlib.Path, words):
    config = configured(tmp_path, HAPROXY.format(host=HOST, front=FRONT, port=PORT, words=words))
    with serving(inside, transparent="{}"), peer(inside, "haproxy", "-db", "-f", config):
        talk(inside, "192.0.2.7")


def test_nginx(inside, tmp_path: pathlib.Path):
    config = tmp_path / "nginx.conf"
    config.write_text(NGINX.format(folder=tmp_path, host=HOST, front=FRONT, port=PORT))
    with serving(inside, 'from = "127.0.0.1"\naccept = "v1"'), peer(inside, "nginx", "-p", tmp_path, "-c", config):
        talk(inside, None)

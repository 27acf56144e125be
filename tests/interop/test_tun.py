"""wireguard-go with a TUN interface and the kernel's TCP/IP, in network namespaces, configured
with Debian's wireguard-tools; ping and curl as the programs."""

import contextlib
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from watm_test_support import web_services

from .netns import Namespaces, namespaces, run

V4, V6 = "10.9.8.7", "fd00:9::7"


@pytest.fixture(scope="module")
def tunnel() -> Iterator[Namespaces]:
    """A server and a client with keys from wg(8), including a pre-shared key."""
    server_key, client_key, shared = run("wg", "genkey"), run("wg", "genkey"), run("wg", "genpsk")
    server_config = (
        "# made with wg genkey, wg pubkey and wg genpsk\n"
        f"[Interface]\nPrivateKey = {server_key}"
        f"[Peer]\nPublicKey = {run('wg', 'pubkey', stdin=client_key)}PresharedKey = {shared}"
        "AllowedIPs = 10.0.0.2/32, fd00::2/128\n"
    )
    with namespaces() as spaces, _server(spaces, server_config) as port:
        client_config = (
            f"[Interface]\nPrivateKey = {client_key}"
            f"[Peer]\nPublicKey = {run('wg', 'pubkey', stdin=server_key)}PresharedKey = {shared}"
            f"AllowedIPs = 0.0.0.0/0, ::/0\nEndpoint = 127.0.0.1:{port}\n"
        )
        with spaces.wireguard(client_config, ["10.0.0.2/32", "fd00::2/128"]):
            yield spaces


@contextlib.contextmanager
def _server(spaces: Namespaces, config: str) -> Iterator[int]:
    program = pathlib.Path(__file__).with_name("serve.py")
    process = subprocess.Popen(
        spaces.command(spaces.outer, sys.executable, program),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        process.stdin.write(config)
        process.stdin.close()
        line = process.stdout.readline()
        assert line, f"the server ended with {process.wait()}"
        yield int(line)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("to", [V4, V6], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("size", [0, 56, 1372])
def test_the_systems_ping(tunnel: Namespaces, to: str, size: int) -> None:
    tunnel.inside("ping", "-n", "-c", "5", "-i", "0.05", "-W", "5", "-s", str(size), to)


@pytest.mark.parametrize("to", [V4, V6], ids=["ipv4", "ipv6"])
def test_curl_gets_a_page(tunnel: Namespaces, to: str) -> None:
    assert tunnel.inside("curl", "-sS", "--max-time", "10", _url(to)).encode() == web_services.PAGE


@pytest.mark.parametrize("to", [V4, V6], ids=["ipv4", "ipv6"])
def test_curl_uploads(tunnel: Namespaces, to: str, tmp_path: pathlib.Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"upload " * 700_000)
    counted = tunnel.inside("curl", "-sS", "--max-time", "30", "-T", body, _url(to))
    assert int(counted) == body.stat().st_size


def test_curl_side_by_side(tunnel: Namespaces) -> None:
    urls = [_url(V4), _url(V6)] * 20
    pages = tunnel.inside("curl", "-sS", "--no-keepalive", "--parallel", "--max-time", "30", *urls)
    assert pages.encode() == web_services.PAGE * len(urls)


def test_wg_shows_the_handshake(tunnel: Namespaces) -> None:
    tunnel.inside("ping", "-n", "-c", "1", "-W", "5", V4)
    _, stamp = tunnel.inside("wg", "show", tunnel.name, "latest-handshakes").split()
    assert int(stamp) > 0


def _url(host: str) -> str:
    return f"http://[{host}]/" if ":" in host else f"http://{host}/"

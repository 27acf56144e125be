"""The groups of the key exchange, above all X25519MLKEM768, with Go and with the OpenSSL of
Python's cryptography, which is newer than the machine's.
"""

import asyncio
import contextlib
import pathlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from OpenSSL import SSL

from watm_test_support.certificates import Authority, Leaf
from watm_test_support.repository import ROOT

from .backends import backend, echo
from .peers import HOST, LIMIT, dial, listen, openssl_server, run, written
from .test_dial import ask
from .test_listen import SHAPES, s_client

GO = ROOT / "build" / "goclient"
HYBRID = "X25519MLKEM768"


@contextlib.asynccontextmanager
async def go_server(leaf: Leaf, folder: pathlib.Path, *groups: str) -> AsyncIterator[tuple[int, asyncio.StreamReader]]:
    """Runs an echo server in Go. Yields its port, and a line with the group of each connection."""
    command = (GO, "server", written(leaf.pem, folder, "go.pem"), *groups)
    process = await asyncio.create_subprocess_exec(*command, stdout=-1)
    try:
        async with asyncio.timeout(LIMIT):
            yield int(await process.stdout.readline()), process.stdout
    finally:
        process.kill()
        await process.wait()


@contextlib.contextmanager
def new_openssl_server(leaf: Leaf, folder: pathlib.Path) -> Iterator[tuple[int, list[str]]]:
    """Runs an echo server. Yields its port, and the groups of the connections."""
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    path = written(leaf.pem, folder, "new.pem")
    context.use_certificate_chain_file(path)
    context.use_privatekey_file(path)
    groups = []

    def serve() -> None:
        with contextlib.suppress(OSError, SSL.Error):
            while True:
                connection = SSL.Connection(context, listener.accept()[0])
                connection.set_accept_state()
                data = connection.recv(100)
                groups.append(connection.get_group_name())
                connection.sendall(data)

    with socket.create_server((HOST, 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1], groups
        listener.shutdown(socket.SHUT_RDWR)


def group_of_new_openssl(port: int, root: pathlib.Path) -> str:
    """Returns the group of a connection on which a line was echoed."""
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.load_verify_locations(root)
    context.set_verify(SSL.VERIFY_PEER)
    with socket.create_connection((HOST, port), LIMIT) as tcp:
        # The library reads available data and does not wait for more.
        tcp.settimeout(None)
        connection = SSL.Connection(context, tcp)
        connection.set_tlsext_host_name(b"localhost")
        connection.set_connect_state()
        connection.sendall(b"hello\n")
        assert connection.recv(6) == b"hello\n"
        return connection.get_group_name()


@SHAPES
async def test_clients_have_the_hybrid_group(module, localhost: Leaf, root, tmp_path) -> None:
    async with backend(echo) as to, listen(localhost.pem, to, tmp_path, module=module) as port:
        assert await asyncio.to_thread(group_of_new_openssl, int(port), root) == HYBRID
        for groups, expected in [
            ((), HYBRID),
            ((HYBRID,), HYBRID),
            (("X25519",), "X25519"),
            (("P-384",), "CurveP384"),
        ]:
            assert await run(GO, "group", f"{HOST}:{port}", root, *groups) == f"{expected}\n"


async def test_a_client_is_asked_for_another_share(localhost: Leaf, root, tmp_path) -> None:
    """Checks a client that sends a share of an unsupported group and names a supported one."""
    async with backend(echo) as to, listen(localhost.pem, to, tmp_path) as port:
        for group in ("X25519", "P-256", "P-384"):
            said = await s_client(port, root, "-tls1_3", "-groups", f"X448:{group}", "-msg")
            # The client sends a second ClientHello after a HelloRetryRequest.
            assert said.count(", ClientHello") == 2
            assert "hello\n" in said


@SHAPES
async def test_servers_choose_among_the_groups(module, authority: Authority, localhost: Leaf, tmp_path) -> None:
    config = {"server": {"roots": authority.pem, "name": "localhost"}}
    for groups, expected in [
        ((), HYBRID),
        ((HYBRID,), HYBRID),
        (("X25519",), "X25519"),
        # The server requests this group with a HelloRetryRequest.
        (("P-384",), "CurveP384"),
    ]:
        async with go_server(localhost, tmp_path, *groups) as (to, chosen):
            async with dial(config, f"{HOST}:{to}", tmp_path, module=module) as port:
                assert await ask(port) == b"hello\n"
                assert (await chosen.readline()).decode() == f"{expected}\n"
    with new_openssl_server(localhost, tmp_path) as (to, chosen):
        async with dial(config, f"{HOST}:{to}", tmp_path, module=module) as port:
            assert await ask(port) == b"hello\n"
            assert chosen == [HYBRID]


@pytest.mark.parametrize("group", ["X25519", "P-256", "P-384"])
async def test_a_server_without_the_hybrid_group_has_its_own(group, authority, localhost: Leaf, tmp_path) -> None:
    config = {"server": {"roots": authority.pem, "name": "localhost"}}
    async with openssl_server(tmp_path, localhost.chain, localhost.key, "-groups", group) as to:
        async with dial(config, f"{HOST}:{to}", tmp_path) as port:
            assert await ask(port) == b"olleh\n"

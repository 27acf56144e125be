"""Log records of `watm serve` about TLS."""

import asyncio
import contextlib
import json
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

from watm_test_support.certificates import Authority, Leaf
from watm_test_support.repository import WATM

from .backends import backend, echo
from .peers import COMPONENT, HOST, LIMIT, written
from .test_listen import s_client


@contextlib.asynccontextmanager
async def served(folder, to: int, level: str = "info") -> AsyncIterator[tuple[int, Callable[[str], Awaitable[dict]]]]:
    """Runs a server with tls.json of `folder` in front of a port. Yields its port, and a function
    that waits for the next record of a target.
    """
    text = (
        f'[logs]\nformat = "json"\nlevel = "{level}"\n[[listener]]\nmodule = "{COMPONENT}"\n'
        f'config-file = "tls.json"\naddresses = ["{HOST}:0"]\nupstream = "{HOST}:{to}"\nworkers = 1\n'
    )
    command = (WATM, "serve", "--unsealed", written(text, folder, "watm.toml"))
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=asyncio.subprocess.STDOUT)

    async def record(target: str) -> dict:
        while True:
            line = await process.stdout.readline()
            assert line
            with contextlib.suppress(ValueError):
                known = json.loads(line)
                if known["target"] == target:
                    return known

    try:
        async with asyncio.timeout(LIMIT):
            address = (await record("watm::program"))["address"]
            yield int(address.rpartition(":")[2]), record
    finally:
        process.kill()
        await process.wait()


async def test_a_line_for_each_connection_has_what_is_known_of_tls(
    authority: Authority, localhost: Leaf, root, tmp_path
) -> None:
    written({"certificates": [localhost.pair], "alpn": ["h2"]}, tmp_path, "tls.json")
    session = tmp_path / "session"
    async with backend(echo) as to:
        async with served(tmp_path, to) as (port, record):
            said = await s_client(port, root, "-alpn", "h2", "-servername", "localhost", "-sess_out", session)
            # The client sends no data before the end of the handshake.
            assert "Max Early Data: 0" in said
            await s_client(port, root, "-tls1_3", "-servername", "localhost", "-sess_in", session)
            await s_client(port, root, "-tls1_2", "-noservername")
            lines = [await record("watm::connection") for _ in range(3)]
    whole, resumed, old = lines
    assert whole["sni"] == "localhost" and whole["alpn"] == "h2"
    assert "sni" not in old and "alpn" not in old
    assert [line["tls_version"] for line in lines] == ["TLSv1.3", "TLSv1.3", "TLSv1.2"]
    assert [line["tls_resumed"] for line in lines] == ["no", "yes", "no"]
    assert whole["tls_cipher"] == "TLS_CHACHA20_POLY1305_SHA256"
    assert old["tls_cipher"] == "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    for line in lines:
        assert line["client"].startswith(f"{HOST}:")
        assert (line["bytes_in"], line["bytes_out"], line["reason"]) == (6, 6, "done")
        assert line["duration_ms"] >= 0


async def test_a_line_for_each_that_was_refused_has_the_reason(localhost: Leaf, tmp_path) -> None:
    written({"certificates": [localhost.pair]}, tmp_path, "tls.json")
    async with backend(echo) as to, served(tmp_path, to, "debug") as (port, record):
        reader, writer = await asyncio.open_connection(HOST, port)
        ours = writer.get_extra_info("sockname")[1]
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        async with asyncio.timeout(LIMIT):
            while ": not TLS" not in (line := await record("watm::module"))["message"]:
                pass
        # Strangers determine the number of these records.
        assert line["level"] == "DEBUG"
        assert line["message"].startswith(f"{HOST}:{ours}: not TLS")
        writer.close()


async def test_a_client_that_the_module_cuts_is_no_client_that_aborts(authority: Authority, localhost: Leaf, tmp_path) -> None:
    """Checks a client that sends an unencrypted record, and one that resets its connection."""
    written({"certificates": [localhost.pair]}, tmp_path, "tls.json")
    context = ssl.create_default_context(cadata=authority.pem)
    async with backend(echo) as to, served(tmp_path, to) as (port, record):

        def client(end: Callable[[ssl.SSLSocket], None]) -> None:
            near = context.wrap_socket(socket.create_connection((HOST, port), LIMIT), server_hostname="localhost")
            with near:
                near.sendall(b"hello")
                assert near.recv(5) == b"hello"
                end(near)

        await asyncio.to_thread(client, lambda near: os.write(near.fileno(), b"\x17\x03\x03\x00\x20" + bytes(32)))
        assert (await record("watm::connection"))["reason"] == "module"
        reset = struct.pack("ii", 1, 0)
        await asyncio.to_thread(client, lambda near: near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset))
        assert (await record("watm::connection"))["reason"] == "client-reset"


async def test_workers_warn_of_a_key_once(authority: Authority, tmp_path) -> None:
    rsa = authority.sign("localhost", names=["localhost"], key="rsa")
    written({"certificates": [rsa.pair]}, tmp_path, "tls.json")
    text = (
        f'[[listener]]\nmodule = "{COMPONENT}"\nconfig-file = "tls.json"\n'
        f'addresses = ["{HOST}:0"]\nupstream = "{HOST}:1"\nworkers = 3\n'
    )
    process = await asyncio.create_subprocess_exec(
        *(WATM, "serve", "--unsealed", written(text, tmp_path, "watm.toml")), stderr=asyncio.subprocess.PIPE
    )
    said = b""
    async with asyncio.timeout(LIMIT):
        while b"listening on" not in said:
            line = await process.stderr.readline()
            assert line, said.decode()
            said += line
    process.kill()
    await process.wait()
    assert said.count(b"certificates[0].key: an RSA key takes") == 1

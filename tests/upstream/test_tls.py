"""Upstreams through TLS, to an OpenSSL server that requests client certificates."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator

from watm_test_support.certificates import Authority, Leaf

from .ends import LIMIT, fetch, proxy, upstream, written


@contextlib.asynccontextmanager
async def server(authority: Authority, own: Leaf, files: str) -> AsyncIterator[int]:
    """Serves clients of this root a page with the subject of their certificate. Yields the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files)
    context.load_verify_locations(cadata=authority.pem)
    context.verify_mode = ssl.CERT_REQUIRED

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        subject = writer.get_extra_info("peercert")["subject"]
        text = "I know " + dict(pair for part in subject for pair in part)["commonName"]
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode())
        await writer.drain()
        writer.close()

    started = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    try:
        yield started.sockets[0].getsockname()[1]
    finally:
        started.close()


async def test_the_key_of_a_clients_certificate_stays_with_the_host(tmp_path) -> None:
    authority = Authority("a root")
    own = authority.sign("localhost", names=["localhost"])
    mine, other = (authority.sign(name, names=["client.test"]) for name in ("a client", "another"))
    key, wrong = (written(tmp_path, f"{name}.key", leaf.key) for name, leaf in (("mine", mine), ("other", other)))
    shown = {"roots": authority.pem, "chain": mine.chain, "host-key": "mine"}
    config = written(tmp_path, "tls.json", json.dumps({"server": shown}))
    assert "PRIVATE KEY" not in config.read_text()
    async with server(authority, own, str(written(tmp_path, "own.pem", own.pem))) as there:
        url = f"http://localhost:{there}/"
        async with proxy(tmp_path, *upstream(f"tls?config={config}&host_keys=mine={key}")) as (_, port):
            assert await fetch(port, url) == "I know a client"
        nobody = written(tmp_path, "nobody.json", json.dumps({"server": {"roots": authority.pem}}))
        async with proxy(tmp_path, *upstream(f"tls?config={nobody}")) as (_, port):
            assert "I know" not in await fetch(port, url)
        # A key that does not match the certificate, and no key.
        for given, said in ((f"&host_keys=mine={wrong}", "does not match the first certificate"), ("", 'the host has no key "mine"')):
            async with proxy(tmp_path, *upstream(f"tls?config={config}{given}")) as (program, _):
                # The observer reads standard input, whose end stops the program.
                program.process.stdin.close()
                async with asyncio.timeout(LIMIT):
                    assert await program.ended() == 1
                assert said in program.text

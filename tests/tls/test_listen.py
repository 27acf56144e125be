"""The module as a server for other clients."""

import asyncio
import base64
import contextlib
import hashlib
import os
import pathlib
import re
import ssl
import struct

import pytest

from watm_test_support.certificates import Authority

from .backends import Recorder, backend, echo, reverse, web
from .peers import COMPONENT, HOST, LIMIT, WATER, listen, run, serve, written

SECRET = base64.b64encode(b"k" * 32).decode()
SHAPES = pytest.mark.parametrize("module", [COMPONENT, WATER], ids=["component", "water"])
VERSIONS = pytest.mark.parametrize("version", ["1.2", "1.3"])


async def s_client(
    port: int, root: pathlib.Path, *options: str | pathlib.Path, until: bytes = b"hello\n", status: int = 0
) -> str:
    """Runs `openssl s_client`, which sends a line. Returns its output up to the answer."""
    command = ("openssl", "s_client", "-connect", f"{HOST}:{port}", "-CAfile", root, "-verify_return_error")
    return await run(*command, *options, say=b"hello\n", until=until, status=status)


@SHAPES
@VERSIONS
async def test_openssl(module, version, localhost, root, tmp_path) -> None:
    async with backend(echo) as to, listen(localhost.pem, to, tmp_path, module=module) as port:
        said = await s_client(port, root, f"-tls{version.replace('.', '_')}")
        assert "hello\n" in said
        assert "CHACHA20-POLY1305" in said.upper().replace("_", "-")
        assert f"TLSv{version}" in said


@pytest.mark.parametrize("priority", ["NORMAL:-VERS-ALL:+VERS-TLS1.2", "NORMAL:-VERS-ALL:+VERS-TLS1.3"])
async def test_gnutls(priority, localhost, root, tmp_path) -> None:
    async with backend(echo) as to, listen(localhost.pem, to, tmp_path) as port:
        command = ("gnutls-cli", "--priority", priority, "--x509cafile", root, "-p", str(port), "localhost")
        said = await run(*command, say=b"hello\n", until=b"hello\n")
        assert "Status: The certificate is trusted." in said
        assert "hello\n" in said


@SHAPES
async def test_curl(module, localhost, root, tmp_path) -> None:
    async with backend(web) as to, listen(localhost.pem, to, tmp_path, module=module) as port:
        pages = [f"https://localhost:{port}/{n}" for n in range(3)]
        assert await run("curl", "-sS", "--cacert", root, *pages) == "page /0page /1page /2"


@pytest.mark.parametrize("key", ["p384", "ed25519", "rsa"])
async def test_other_keys(key, authority: Authority, root, tmp_path) -> None:
    leaf = authority.sign("localhost", names=["localhost"], key=key)
    async with backend(echo) as to, listen(leaf.pem, to, tmp_path) as port:
        assert "hello\n" in await s_client(port, root)


async def test_old_versions_are_refused(localhost, root, tmp_path) -> None:
    config = {"certificates": [localhost.pair], "versions": ["1.3"]}
    async with backend(echo) as to, listen(config, to, tmp_path) as port:
        said = await s_client(port, root, "-tls1_2", status=1)
        assert "alert protocol version" in said


@VERSIONS
async def test_sessions_are_resumed_by_another_worker(version, localhost, root, tmp_path) -> None:
    config = {"certificates": [localhost.pair], "tickets": {"secret": SECRET, "hours": 1}}
    session = tmp_path / "session"
    option = f"-tls{version.replace('.', '_')}"
    (tmp_path / "other").mkdir()
    async with backend(echo) as to:
        async with listen(config, to, tmp_path) as one, listen(config, to, tmp_path / "other") as two:
            assert "\nNew, " in await s_client(one, root, option, "-sess_out", session)
            said = await s_client(two, root, option, "-sess_in", session)
            assert "\nReused, " in said
            assert "hello\n" in said
        # Only this server has the key.
        async with listen(localhost.pem, to, tmp_path) as other:
            assert "\nNew, " in await s_client(other, root, option, "-sess_in", session)


@VERSIONS
async def test_all_workers_resume_a_session(version, localhost, root, tmp_path) -> None:
    """Checks resumption across workers without a secret in the configuration. The kernel divides
    connections by their ports.
    """
    session = tmp_path / "session"
    option = f"-tls{version.replace('.', '_')}"
    async with backend(echo) as to, serve(localhost.pem, to, tmp_path, workers=3) as port:
        assert "\nNew, " in await s_client(port, root, option, "-sess_out", session)
        for _ in range(12):
            assert "\nReused, " in await s_client(port, root, option, "-sess_in", session)


async def test_reconnecting_resumes(localhost, root, tmp_path) -> None:
    async with backend(echo) as to, listen(localhost.pem, to, tmp_path) as port:
        said = await s_client(port, root, "-tls1_2", "-reconnect")
        assert said.count("\nReused, ") == 5


async def test_names_have_their_certificates(authority: Authority, root, tmp_path) -> None:
    leaves = [authority.sign(name, names=[name]) for name in ("one.test", "*.two.test", "x.two.test")]
    config = {"certificates": [leaf.pair for leaf in leaves], "no-match": "abort"}
    async with backend(echo) as to, listen(config, to, tmp_path) as port:
        for name, shown in [("one.test", "one.test"), ("a.two.test", "*.two.test"), ("x.two.test", "x.two.test")]:
            said = await s_client(port, root, "-servername", name, "-verify_hostname", name)
            assert f"subject=CN = {shown}\n" in said
        for name in ("two.test", "other.test"):
            assert "alert" in await s_client(port, root, "-servername", name, status=1)
        assert "alert" in await s_client(port, root, "-noservername", status=1)


async def test_protocols_are_agreed_on(localhost, root, tmp_path) -> None:
    config = {"certificates": [localhost.pair], "alpn": ["h2", "http/1.1"]}
    async with backend(echo) as to, listen(config, to, tmp_path) as port:
        assert "ALPN protocol: h2\n" in await s_client(port, root, "-alpn", "http/1.1,h2")
        assert "No ALPN negotiated" in await s_client(port, root)
        assert "alert no application protocol" in await s_client(port, root, "-alpn", "imap", status=1)


@VERSIONS
async def test_clients_show_certificates(version, authority: Authority, localhost, root, tmp_path) -> None:
    alice = written(authority.sign("alice", names=["alice.test"]).pem, tmp_path, "alice.pem")
    bob = written(authority.sign("bob", names=["bob.test"]).pem, tmp_path, "bob.pem")
    mallory = written(Authority("another").sign("alice", names=["alice.test"]).pem, tmp_path, "mallory.pem")
    clients = {"certificates": "required", "roots": authority.pem, "allow": ["dns:alice.test"]}
    config = {"certificates": [localhost.pair], "clients": clients}
    async with backend(web) as to, listen(config, to, tmp_path) as port:
        url = f"https://localhost:{port}/page"
        curl = ("curl", "-sS", "--cacert", root, f"--tlsv{version}", "--tls-max", version)
        assert await run(*curl, "--cert", alice, url) == "page /page"
        for shown, reason in [
            ((), "alert (certificate required|handshake failure)"),
            (("--cert", bob), "alert"),
            (("--cert", mallory), "alert unknown ca"),
        ]:
            said = await run(*curl, *shown, url, status=None)
            assert "page" not in said.replace("/page", "")
            assert re.search(reason, said), said


@VERSIONS
@SHAPES
async def test_an_end_is_of_one_direction(module, version, localhost, authority, tmp_path) -> None:
    """Checks that data before a half-close is answered after it."""
    async with backend(reverse) as to, listen(localhost.pem, to, tmp_path, module=module) as port:
        priority = f"NORMAL:-VERS-ALL:+VERS-TLS{version}"
        root = written(authority.pem, tmp_path, "root.pem")
        command = ("gnutls-cli", "--priority", priority, "--x509cafile", root, "-p", str(port), "localhost")
        # The client sends close_notify at the end of its input, and keeps reading.
        said = await run(*command, say=b"hello")
        assert "olleh" in said


async def test_what_is_cut_short_is_an_error(localhost, root, tmp_path) -> None:
    """Checks that the application does not see a client without close_notify as a regular end."""
    ends: asyncio.Queue[str] = asyncio.Queue()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(65536):
                writer.write(b".")
            ends.put_nowait("end")
        except ConnectionResetError:
            ends.put_nowait("reset")
        writer.close()

    async with backend(hear) as to, listen(localhost.pem, to, tmp_path) as port:
        for polite in (True, False):
            client = await asyncio.create_subprocess_exec(
                *("openssl", "s_client", "-connect", f"{HOST}:{port}", "-CAfile", root, "-quiet", "-no_ign_eof"),
                stdin=-1,
                stdout=-1,
                stderr=asyncio.subprocess.DEVNULL,
            )
            client.stdin.write(b"half of")
            assert await client.stdout.readexactly(1) == b"."
            if polite:
                client.stdin.close()
            else:
                client.kill()
            assert await asyncio.wait_for(ends.get(), LIMIT) == ("end" if polite else "reset")
            if polite:
                client.kill()
            await client.wait()


@SHAPES
async def test_no_byte_is_lost_on_a_slow_reader(module, authority: Authority, localhost, tmp_path) -> None:
    data = os.urandom(1 << 20) * 24

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    async with backend(pour) as to, listen(localhost.pem, to, tmp_path, module=module) as port:
        reader, writer = await connect(port, authority, limit=65536)
        await asyncio.sleep(0.5)
        hash_ = hashlib.sha256()
        while piece := await reader.read(1 << 16):
            hash_.update(piece)
        assert hash_.digest() == hashlib.sha256(data).digest()
        writer.close()


async def test_both_directions_at_once(authority: Authority, localhost, tmp_path) -> None:
    data = os.urandom(1 << 20) * 8
    async with backend(echo) as to, listen(localhost.pem, to, tmp_path) as port:

        async def one() -> bool:
            reader, writer = await connect(port, authority)
            writer.write(data)
            same = await reader.readexactly(len(data)) == data
            writer.close()
            return same

        assert all(await asyncio.gather(*(one() for _ in range(4))))


async def test_limits(authority: Authority, localhost, tmp_path) -> None:
    config = {"certificates": [localhost.pair], "limits": {"handshake": 1, "idle": 1, "lifetime": 2}}
    loop = asyncio.get_running_loop()
    async with backend(echo) as to, listen(config, to, tmp_path) as port:

        async def silent() -> float:
            """Returns the seconds until the server closes a silent connection."""
            start = loop.time()
            reader, writer = await asyncio.open_connection(HOST, port)
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
            return loop.time() - start

        async def idle() -> float:
            """Returns the seconds until the server closes an idle connection after the handshake."""
            start = loop.time()
            reader, writer = await connect(port, authority)
            # The server sends close_notify.
            assert await reader.read() == b""
            writer.close()
            return loop.time() - start

        async def busy() -> float:
            start = loop.time()
            reader, writer = await connect(port, authority)
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                while loop.time() - start < 5:
                    writer.write(b".")
                    if not await reader.read(1):
                        break
                    await asyncio.sleep(0.1)
            writer.close()
            return loop.time() - start

        took = await asyncio.gather(silent(), idle(), busy())
        for seconds, expected in zip(took, (1, 1, 2), strict=True):
            assert expected - 0.1 < seconds < expected + 0.7, took


async def test_the_application_is_told_who_it_is(authority: Authority, localhost, root, tmp_path) -> None:
    alice = written(authority.sign("alice", names=["alice.test"]).pem, tmp_path, "alice.pem")
    recorder = Recorder()
    config = {
        "certificates": [localhost.pair],
        "alpn": ["h2"],
        "clients": {"certificates": "optional", "roots": authority.pem},
        "proxy-out": {"version": "v2", "unique-id": True},
    }
    async with backend(recorder) as to, listen(config, to, tmp_path) as port:
        await s_client(port, root, "-alpn", "h2", "-servername", "localhost", "-cert", alice, until=b"done\n")
        said = await asyncio.wait_for(recorder.said.get(), LIMIT)
    assert said[:14] == b"\r\n\r\n\0\r\nQUIT\n\x21\x11"
    (length,) = struct.unpack(">H", said[14:16])
    assert said[16:24] == bytes([127, 0, 0, 1]) * 2
    assert struct.unpack(">H", said[26:28]) == (port,)
    facts = tlvs(said[28 : 16 + length])
    assert facts[0x01] == b"h2"
    assert facts[0x02] == b"localhost"
    assert len(facts[0x05]) == 32
    ssl_facts = tlvs(facts[0x20][5:])
    assert facts[0x20][:5] == b"\x07\0\0\0\0"
    assert ssl_facts[0x21] == b"TLSv1.3"
    assert ssl_facts[0x22] == b"alice"
    assert said[16 + length :] in (b"", b"hello\n")


def tlvs(data: bytes) -> dict[int, bytes]:
    facts = {}
    while data:
        kind, length = struct.unpack(">BH", data[:3])
        facts[kind] = data[3 : 3 + length]
        data = data[3 + length :]
    return facts


@SHAPES
async def test_whoever_passes_clients_on_says_who_they_are(module, localhost, root, tmp_path) -> None:
    recorder = Recorder()
    config = {
        "certificates": [localhost.pair],
        "proxy-in": {"from": "any" if module == WATER else HOST},
        "proxy-out": {"version": "v1"},
    }
    async with backend(recorder) as to, listen(config, to, tmp_path, module=module) as port:
        await run("curl", "-sS", "-m", "2", "--haproxy-protocol", "--cacert", root, f"https://localhost:{port}/", status=None)
        said = await asyncio.wait_for(recorder.said.get(), LIMIT)
        assert said.startswith(b"PROXY TCP4 127.0.0.1 127.0.0.1 ")
        assert said.split(b"\r\n")[0].endswith(b" %d" % port)


async def test_whoever_does_not_belong_here_goes_to_the_decoy(authority: Authority, localhost, root, tmp_path) -> None:
    alice = written(authority.sign("alice", names=["alice.test"]).pem, tmp_path, "alice.pem")
    config = {
        "certificates": [localhost.pair],
        "clients": {"certificates": "required", "roots": authority.pem},
        "decoy": True,
    }

    async def decoy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nnothing to see")
        writer.close()

    async with backend(web) as to, backend(decoy) as other:
        async with listen(config, to, tmp_path, "--decoy", f"{HOST}:{other}") as port:
            url = f"localhost:{port}/page"
            assert await run("curl", "-sS", "--cacert", root, "--cert", alice, f"https://{url}") == "page /page"
            assert "nothing to see" in await run("curl", "-sS", "--cacert", root, f"https://{url}")
            assert await run("curl", "-sS", f"http://{url}") == "nothing to see"
        # Without a decoy the client must not reach the application.
        async with listen(config, to, tmp_path) as port:
            assert "page" not in await run("curl", "-sS", f"http://localhost:{port}/", status=None)

        elsewhere = (f'decoy = "{HOST}:{other}"', 'proxy-header = "v2"')
        async with serve(config, to, tmp_path, *elsewhere) as port:
            assert await run("curl", "-sS", f"http://localhost:{port}/") == "nothing to see"
        async with serve(config, to, tmp_path) as port:
            assert "page" not in await run("curl", "-sS", f"http://localhost:{port}/", status=None)


async def test_strangers_do_no_harm(localhost, root, tmp_path) -> None:
    """Checks that garbage and truncated handshakes end only their own connection."""
    async with backend(echo) as to, listen(localhost.pem, to, tmp_path) as port:

        async def throw(data: bytes) -> None:
            # This includes "not connected", for connections that are already reset.
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(data)
                writer.write_eof()
                await reader.read()
                writer.close()

        context = ssl.create_default_context()
        out = ssl.MemoryBIO()
        with contextlib.suppress(ssl.SSLWantReadError):
            context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
        hello = out.read()
        await asyncio.gather(*(throw(hello[:cut]) for cut in range(0, len(hello), 7)))
        await asyncio.gather(*(throw(os.urandom(size)) for size in range(1, 4000, 100)))
        await asyncio.gather(*(throw(b"\x16\x03\x01" + os.urandom(size)) for size in range(1, 4000, 100)))
        assert "hello\n" in await s_client(port, root)


async def connect(port: int, authority: Authority, **options):
    context = ssl.create_default_context(cadata=authority.pem)
    return await asyncio.open_connection(HOST, port, ssl=context, server_hostname="localhost", **options)

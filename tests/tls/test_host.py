"""TLS in programs that load the module: another certificate under load, and mitmproxy."""

import asyncio
import contextlib
import json
import ssl

import pytest

import mitmproxy_watm
from watm_test_support.certificates import Authority, Leaf
from watm_test_support.mitmproxy_programs import start

from .backends import backend, web
from .peers import COMPONENT, HOST, LIMIT, run, serve, written
from .test_listen import s_client


@contextlib.asynccontextmanager
async def server(config: dict, seen: list | None = None):
    """Echoes, and keeps the facts of each flow."""

    async def handle(stream) -> None:
        if seen is not None:
            seen.append(stream.get_extra_info("attributes"))
        with contextlib.suppress(ConnectionError):
            while data := await stream.read(65536):
                stream.write(data)
                await stream.drain()
        stream.close()

    async with await mitmproxy_watm.start_server(
        str(COMPONENT), HOST, 0, config=json.dumps(config), handle_tcp_stream=handle, unsealed=True
    ) as running:
        yield running


async def shown(port: int, authority: Authority) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
    """Opens a connection. Returns the serial number of its certificate, and the connection."""
    context = ssl.create_default_context(cadata=authority.pem)
    reader, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname="localhost")
    return writer.get_extra_info("peercert")["serialNumber"], reader, writer


async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello")
    async with asyncio.timeout(LIMIT):
        assert await reader.readexactly(5) == b"hello"


async def test_another_certificate_under_load(authority: Authority) -> None:
    leaves = [authority.sign("localhost", names=["localhost"]) for _ in range(4)]
    async with server({"certificates": [leaves[0].pair]}) as running:
        port = running.getsockname()[1]
        first, *old = await shown(port, authority)
        numbers: list[int] = []
        stop = asyncio.Event()

        async def load() -> None:
            while not stop.is_set():
                number, reader, writer = await shown(port, authority)
                numbers.append(number)
                await asked(reader, writer)
                writer.close()

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(load())
            for leaf in leaves[1:]:
                await asyncio.sleep(0.1)
                await running.reconfigure(json.dumps({"certificates": [leaf.pair]}))
                broken = {"certificates": [leaf.pair | {"key": leaves[0].key}]}
                with pytest.raises(ValueError, match=r"certificates\[0\].key: does not match the first certificate"):
                    await running.reconfigure(json.dumps(broken))
            await asyncio.sleep(0.1)
            stop.set()
        assert len(set(numbers)) == 4
        last, *new = await shown(port, authority)
        assert last == numbers[-1] != first
        # Earlier connections are unaffected.
        await asked(*old)
        for _, writer in (old, new):
            writer.close()


async def test_a_flow_is_told_of_tls(authority: Authority, localhost: Leaf, root) -> None:
    seen: list[dict[str, str]] = []
    async with server({"certificates": [localhost.pair], "alpn": ["http/1.1"]}, seen) as running:
        port = running.getsockname()[1]
        await run("curl", "-sS", "-m", "1", "--cacert", root, f"https://localhost:{port}/", status=None)
    (facts,) = seen
    assert facts["sni"] == "localhost"
    assert facts["alpn"] == "http/1.1"
    assert facts["tls.version"] == "TLSv1.3"
    assert facts["tls.cipher"] == "TLS_CHACHA20_POLY1305_SHA256"
    assert facts["tls.resumed"] == "no"


CIPHERS = {"1.2": "ECDHE-ECDSA-CHACHA20-POLY1305", "1.3": "TLS_CHACHA20_POLY1305_SHA256"}
"""The names of ciphers, which are those of OpenSSL, as the PROXY protocol specifies."""


@pytest.mark.parametrize("version", ["1.2", "1.3"])
async def test_what_watm_serve_says_of_tls_is_what_the_next_one_reads(
    version, authority: Authority, localhost: Leaf, root, tmp_path
) -> None:
    """Checks that `watm serve` passes TLS facts to another module by the PROXY protocol."""
    alice = written(authority.sign("alice", names=["alice.test"]).pem, tmp_path, "alice.pem")
    seen: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def handle(stream) -> None:
        seen.put_nowait(stream.get_extra_info("attributes") | {"peername": str(stream.get_extra_info("peername"))})
        with contextlib.suppress(ConnectionError):
            while data := await stream.read(65536):
                stream.write(data)
                await stream.drain()
        stream.close()

    behind = await mitmproxy_watm.start_server(
        str(COMPONENT.with_name("proxy-protocol.wasm")),
        HOST,
        0,
        config=f'from = "{HOST}"\n',
        transport="tcp",
        handle_tcp_stream=handle,
        unsealed=True,
    )
    clients = {"certificates": "optional", "roots": authority.pem}
    config = {"certificates": [localhost.pair], "alpn": ["h2"], "clients": clients}
    option = f"-tls{version.replace('.', '_')}"
    session = tmp_path / "session"
    async with behind, serve(config, behind.getsockname()[1], tmp_path, 'proxy-header = "v2"') as port:
        ask = (port, root, option, "-alpn", "h2", "-servername", "localhost")
        await s_client(*ask, "-cert", alice, "-sess_out", session)
        await s_client(*ask, "-cert", alice, "-sess_in", session)
        await s_client(*ask)
        whole, resumed, nobody = [await asyncio.wait_for(seen.get(), LIMIT) for _ in range(3)]
    for facts in (whole, resumed, nobody):
        assert facts["alpn"] == "h2"
        assert facts["sni"] == "localhost"
        assert facts["tls.version"] == f"TLSv{version}"
        assert facts["tls.cipher"] == CIPHERS[version]
        assert facts["peername"].startswith("('127.0.0.1', ")
    for facts in (whole, resumed):
        assert facts["tls.client-cn"] == "alice"
        assert facts["tls.verified"] == "yes"
    assert "tls.verified" not in nobody and "tls.client-cn" not in nobody


async def test_all_that_came_before_a_cut_is_read_and_then_the_error(localhost: Leaf, authority: Authority) -> None:
    """Checks a connection that ends without close_notify, with a program that reads late."""
    gone, ended = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def handle(stream) -> None:
        await gone.wait()
        await asyncio.sleep(0.2)
        come = b""
        try:
            while data := await stream.read(1000):
                come += data
            ended.set_result((come, None))
        except OSError as e:
            ended.set_result((come, e))

    config = json.dumps({"certificates": [localhost.pair]})
    async with await mitmproxy_watm.start_server(
        str(COMPONENT), HOST, 0, config=config, handle_tcp_stream=handle, unsealed=True
    ) as running:
        _, _, writer = await shown(running.getsockname()[1], authority)
        writer.write(b"x" * 50_000)
        await writer.drain()
        # The connection below TLS ends without a close_notify.
        writer.transport.abort()
        gone.set()
        come, error = await asyncio.wait_for(ended, LIMIT)
    assert come == b"x" * 50_000
    assert isinstance(error, OSError)


async def test_mitmproxy_has_flows_in_plain_text(localhost: Leaf, root, tmp_path) -> None:
    config = written(localhost.pem, tmp_path, "tls.pem")
    async with backend(web) as to:
        mode = f"watm:{COMPONENT}?config={config}&to=http://{HOST}:{to}@{HOST}:0"
        async with start("mitmdump-watm", tmp_path, "--set", "watm_unsealed=true", "--mode", mode) as program:
            port = int((await program.wait_for(r"server listening at .*:(\d+)")).group(1))
            url = f"https://localhost:{port}/page"
            assert await run("curl", "-sS", "--local-port", "42000-42999", "--cacert", root, url) == "from inside /page"
            flow = await program.flow(flow="http", url=f"http://{HOST}:{to}/page")
            assert flow["peername"][0] == HOST
            assert 42000 <= flow["peername"][1] <= 42999

"""Starting, watching, reconfiguring and closing a server."""

import asyncio
import errno
import logging
import socket
import threading
import time
from importlib import resources

import pytest

import mitmproxy_watm
from mitmproxy_watm.modules import usual_transport
from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support.repository import MODULES
from watm_test_support.wgclient import WgClient, WgClientError
from watm_test_support.wireguard_server import Keys, serve

MODULE = MODULES / "wireguard.wasm"
"""The module as built, without a seal."""


async def test_a_module_by_name_by_path_and_as_bytes():
    for module in ("wireguard", MODULE, str(MODULE), MODULE.read_bytes()):
        config = Keys.new().config
        async with await mitmproxy_watm.start_server(module, "127.0.0.1", 0, config=config, unsealed=True) as server:
            host, port = server.getsockname()
            assert host == "127.0.0.1" and port > 0
            assert server.is_serving()
            assert [s.getsockname() for s in server.sockets] == [(host, port)]
        assert not server.is_serving() and server.sockets == ()
        assert server.getsockname() == (host, port)


@pytest.mark.parametrize(
    ("name", "transport"),
    [
        ("wireguard.wasm", "udp"),
        ("tls.wasm", "tcp"),
        ("plain.watm1.wasm", "tcp"),
        ("shadowsocks.wasm", "both"),
        ("proxy-protocol.wasm", "both"),
        ("socks5.wasm", "both"),
        ("shadowsocks.watm1.wasm", "tcp"),
    ],
)
async def test_a_module_listens_on_what_it_can(name, transport):
    assert usual_transport(await mitmproxy_watm.load_module(MODULE.with_name(name), unsealed=True)) == transport


async def test_a_module_of_this_package_is_sealed_and_another_has_to_be(tmp_path, caplog):
    packaged = await mitmproxy_watm.load_module("wireguard")
    assert packaged.seal.name == "watm/wireguard" and packaged.seal.delegation
    assert packaged.warnings == []
    assert packaged.granted.sockets == packaged.asked.sockets == ["tcp listen", "udp listen"]
    with pytest.raises(mitmproxy_watm.ModuleError, match="wireguard.wasm: not sealed.*; for development, allow it with unsealed=True"):
        await mitmproxy_watm.load_module(MODULE)
    assert not [record for record in caplog.records if "seal" in record.message]
    unsealed = await mitmproxy_watm.load_module(MODULE, unsealed=True)
    assert unsealed.asked is None and unsealed.granted is None
    assert unsealed.seal is None and "not sealed" in unsealed.warnings[0]
    # The package's root applies to packaged modules only.
    sealed = resources.files("mitmproxy_watm") / "modules" / "wireguard.wasm"
    for allowed in (False, True):
        with pytest.raises(mitmproxy_watm.ModuleError, match="root"):
            await mitmproxy_watm.load_module(sealed.read_bytes(), unsealed=allowed)


async def test_a_closed_server_frees_its_port_and_ends_reads():
    async with serve() as served, served.tcp() as (_, stream), served.udp() as (_, datagrams):
        assert await datagrams.read(100) == b"first"
        reads = [asyncio.create_task(s.read(100)) for s in (stream, datagrams)]
        await asyncio.sleep(0.05)
        served.server.close()
        served.server.close()
        assert await asyncio.gather(*reads) == [b"", b""]
        assert stream.is_closing()
        with pytest.raises(OSError):
            stream.write(b"x")
        await stream.drain()
        await stream.wait_closed()
        await served.server.wait_closed()
        await served.server.wait_closed()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(served.server.getsockname())


async def test_a_port_in_use_is_an_os_error_with_its_number():
    async with serve() as served:
        with pytest.raises(OSError) as error:
            await mitmproxy_watm.start_server(
                "wireguard", *served.server.getsockname(), config=served.keys.config
            )
        assert error.value.errno == errno.EADDRINUSE
        assert str(served.server.getsockname()[1]) in str(error.value)


async def test_errors_say_what_is_wrong(tmp_path):
    async def start(module="wireguard", host="127.0.0.1", port=0, **options):
        await mitmproxy_watm.start_server(module, host, port, **options)

    with pytest.raises(ValueError, match="server_key"):
        await start(config='{"client_key": "x"}')
    with pytest.raises(ValueError, match="unknown_field"):
        await start(config='{"unknown_field": 1}')
    with pytest.raises(FileNotFoundError, match="absent.wasm"):
        await start(tmp_path / "absent.wasm")
    (tmp_path / "text.wasm").write_text("no module")
    with pytest.raises(mitmproxy_watm.ModuleError, match="text.wasm"):
        await start(tmp_path / "text.wasm")
    with pytest.raises(mitmproxy_watm.ModuleError):
        await start(b"\0asm")
    with pytest.raises(OverflowError):
        await start(port=70000, config=Keys.new().config)
    with pytest.raises(ValueError, match="cpu_per_call"):
        import datetime

        await start(config=Keys.new().config, limits=mitmproxy_watm.Limits(cpu_per_call=datetime.timedelta(0)))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_every_address_means_both_families(host):
    keys = Keys.new()
    seen = asyncio.Queue()

    async def handle(stream):
        seen.put_nowait(stream.get_extra_info("original_src"))

    async with await mitmproxy_watm.start_server("wireguard", "", 0, config=keys.config, handle_tcp_stream=handle) as server:
        port = server.getsockname()[1]
        async with WgClient.start(**keys.client_options(port, host)) as client, client.tcp("10.9.8.7:80"):
            assert (await seen.get())[0] == host


async def test_a_name_is_resolved():
    async with await mitmproxy_watm.start_server("wireguard", "localhost", 0, config=Keys.new().config) as server:
        assert server.getsockname()[0] in ("127.0.0.1", "::1")


async def test_an_exception_in_a_handler_is_logged_and_resets_its_flow_alone(caplog):
    async def handle(stream):
        if stream.get_extra_info("sockname")[1] == 666:
            await stream.read(100)
            raise ZeroDivisionError("on purpose")
        stream.write(await stream.read(100))
        stream.close()

    async with serve(handle_tcp_stream=handle) as served, served.client.tcp("10.9.8.7:80") as good:
        async with served.client.tcp("10.9.8.7:666") as bad:
            await bad.write(b"go")
            with pytest.raises(WgClientError, match="reset"):
                await bad.read()
        await good.write(b"fine")
        assert await good.read_all() == b"fine"
    record = next(record for record in caplog.records if record.exc_info)
    assert record.levelno == logging.ERROR
    assert "on purpose" in str(record.exc_info[1]) and record.exc_info[2] is not None


@pytest.mark.parametrize("handler", [lambda: None, lambda stream: 1 / 0])
async def test_a_handler_that_cannot_be_called_is_logged(handler, caplog):
    async with serve(handle_tcp_stream=handler) as served, served.client.tcp("10.9.8.7:80") as socket:
        with pytest.raises(WgClientError, match="reset"):
            await socket.read()
    assert any(record.exc_info for record in caplog.records)


async def test_a_handler_may_be_a_plain_function_and_a_cancelled_one_closes_its_flow(caplog):
    tasks = []

    def plain(stream):
        stream.write(b"plain")
        stream.close()

    async def forever(stream):
        tasks.append(asyncio.current_task())
        await asyncio.Event().wait()

    async with serve(handle_tcp_stream=plain) as served, served.client.tcp("10.9.8.7:80") as socket:
        assert await socket.read_all() == b"plain"
    async with serve(handle_tcp_stream=forever) as served, served.client.tcp("10.9.8.7:80") as socket:
        while not tasks:
            await asyncio.sleep(0.01)
        tasks[0].cancel()
        assert await socket.read_all() == b""
    assert not any(record.exc_info for record in caplog.records)


async def test_handlers_are_not_cancelled_when_the_server_closes():
    ended = asyncio.Event()

    async def handle(stream):
        assert await stream.read(100) == b""
        await asyncio.sleep(0.05)
        ended.set()

    async with serve(handle_tcp_stream=handle) as served, served.client.tcp("10.9.8.7:80"):
        await asyncio.sleep(0.1)
    await ended.wait()


async def test_a_flow_without_a_handler_is_refused():
    async with serve(handle_tcp_stream=None) as served:
        with pytest.raises(WgClientError, match="re(set|fused)"):
            async with served.client.tcp("10.9.8.7:80") as socket:
                await socket.read()


async def test_status_and_stats():
    async with serve() as served, served.tcp() as (socket, stream):
        await socket.write(b"x" * 1000)
        assert await stream.readexactly(1000)
        status = served.server.status()
        assert (status.phase, status.generation, status.flows) == ("running", 0, 1)
        (peer,) = status.peers
        assert peer.name == pubkey(served.keys.client)
        assert peer.endpoint.startswith("127.0.0.1:")
        assert 0 <= peer.last_handshake < 30
        assert peer.received_bytes >= 1000
        stats = served.server.stats()
        assert stats["host.datagrams_received"] > 0
        assert stats == {name: value for name, value in stats.items() if isinstance(value, int)}


async def test_client_configurations_connect():
    async with serve() as served:
        port = served.server.getsockname()[1]
        (config,) = served.server.client_configs()
        assert config.peer == pubkey(served.keys.client)
        assert f"PrivateKey = {served.keys.client}" in config.content
        assert f"PublicKey = {pubkey(served.keys.server)}" in config.content
        assert f"Endpoint = 127.0.0.1:{port}" in config.content
        (config,) = served.server.client_configs("vpn.example.com", 1234)
        assert "Endpoint = vpn.example.com:1234" in config.content
        (config,) = served.server.client_configs("fd00::1", 1)
        assert "Endpoint = [fd00::1]:1" in config.content


async def test_reconfigure_admits_new_peers_and_refuses_nonsense():
    async with serve() as served:
        key = genkey()
        with pytest.raises(ValueError, match="server_key"):
            await served.server.reconfigure("{}")
        async with served.tcp() as (socket, stream):
            await socket.write(b"still served")
            assert await stream.read(100) == b"still served"
        both = f'{{"server_key": "{served.keys.server}", "peer_public_keys": ["{pubkey(served.keys.client)}", "{pubkey(key)}"]}}'
        await served.server.reconfigure(both)
        assert [peer.name for peer in served.server.status().peers] == [pubkey(served.keys.client), pubkey(key)]
        options = Keys(served.keys.server, key).client_options(served.server.getsockname()[1])
        async with WgClient.start(**options, address="10.0.0.2") as client, client.tcp("10.9.8.7:80"):
            stream = await served.streams.get()
            assert stream.get_extra_info("peer") == pubkey(key)


async def test_two_servers_side_by_side_even_with_one_key():
    keys = Keys.new()
    async with serve(keys) as one, serve(keys) as two:
        async with one.tcp() as (a, at_one), two.tcp() as (b, at_two):
            await a.write(b"one")
            await b.write(b"two")
            assert await at_one.read(10) == b"one"
            assert await at_two.read(10) == b"two"


async def test_cancelling_a_start_leaves_no_server_behind():
    keys = Keys.new()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        address = probe.getsockname()
    starting = asyncio.create_task(mitmproxy_watm.start_server("wireguard", *address, config=keys.config))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    for _ in range(100):
        try:
            async with await mitmproxy_watm.start_server("wireguard", *address, config=keys.config):
                return
        except OSError:
            await asyncio.sleep(0.05)
    pytest.fail("the port stays in use")


async def test_log_records_reach_logging_under_the_package_and_hold_no_key(caplog):
    caplog.set_level(logging.DEBUG)
    async with serve() as served, served.tcp() as (socket, stream):
        await served.client.do("raw", hex="000001")
        await socket.write(b"secret payload")
        assert await stream.read(100) == b"secret payload"
        async with asyncio.timeout(5):
            while "Received invalid WireGuard packet" not in caplog.text:
                await asyncio.sleep(0.01)
    ours = [record for record in caplog.records if record.name.startswith("mitmproxy_watm.")]
    assert ours
    for secret in (served.keys.server, served.keys.client, "secret payload"):
        assert secret not in caplog.text
    strangers = [record for record in ours if "invalid WireGuard packet" in record.getMessage()]
    assert all(record.levelno <= logging.DEBUG for record in strangers)


def test_loops_that_cannot_watch_descriptors_are_served_too():
    class Loop(asyncio.SelectorEventLoop):
        def add_reader(self, fd, callback, *args):
            raise NotImplementedError

    async def main():
        async with serve(handle_tcp_stream=echo) as served, served.client.tcp("10.9.8.7:80") as socket:
            for message in (b"one", b"two"):
                await socket.write(message)
                assert await socket.read() == message

    async def echo(stream):
        while data := await stream.read(100):
            stream.write(data)
            await stream.drain()

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())
    deadline = time.monotonic() + 10
    while any(thread.name == "watm wake" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "the thread outlives its loop"
        time.sleep(0.05)

"""A program written for `mitmproxy_rs.wireguard`, with one import changed."""

import asyncio
import errno

import mitmproxy_rs
import pytest

# The one import.
from mitmproxy_watm import wireguard
from watm_test_support.wgclient import WgClient
from watm_test_support.wireguard_server import Keys

native = mitmproxy_rs.wireguard


def test_the_interface_is_the_same():
    assert set(native.__all__) <= set(wireguard.__all__)
    for method in ("getsockname", "close", "wait_closed", "__repr__"):
        assert callable(getattr(wireguard.WireGuardServer, method))


def test_keys_are_interchangeable():
    for key in (native.genkey(), wireguard.genkey()):
        assert wireguard.pubkey(key) == native.pubkey(key)
    for bad in ("", "abc", "A" * 43 + "=" * 5, "ÄÖ"):
        with pytest.raises(ValueError) as ours:
            wireguard.pubkey(bad)
        with pytest.raises(ValueError) as theirs:
            native.pubkey(bad)
        assert str(ours.value) == str(theirs.value) == "Invalid key."


async def start(host="127.0.0.1", port=0, key=None, peers=None, **handlers):
    async def nothing(stream):
        pass

    handlers = {"handle_tcp_stream": nothing, "handle_udp_stream": nothing} | handlers
    return await wireguard.start_wireguard_server(
        host, port, key or wireguard.genkey(), [wireguard.pubkey(wireguard.genkey())] if peers is None else peers, **handlers
    )


async def test_start_errors_are_those_of_the_original():
    for arguments in ({"key": "bad"}, {"peers": ["bad"]}):
        with pytest.raises(ValueError, match="^Invalid key.$"):
            await start(**arguments)
    for host in ("", "localhost"):
        with pytest.raises(ValueError):
            await start(host)
    with pytest.raises(OverflowError):
        await start(port=70000)
    server = await start()
    with pytest.raises(OSError) as error:
        await start(port=server.getsockname()[1])
    assert error.value.errno == errno.EADDRINUSE
    server.close()
    await server.wait_closed()


async def test_both_families_have_a_server_each_on_one_port():
    four = await start("0.0.0.0")
    six = await start("::", four.getsockname()[1])
    for server in (four, six):
        server.close()
        await server.wait_closed()


async def test_an_echo_server():
    keys = Keys.new()
    closed = asyncio.Event()

    async def handle_tcp(stream: wireguard.Stream) -> None:
        while data := await stream.read(4096):
            stream.write(data.upper())
            await stream.drain()
        stream.write_eof()
        assert stream.is_closing()
        stream.close()
        await stream.wait_closed()
        closed.set()

    async def handle_udp(stream: wireguard.Stream) -> None:
        stream.write((await stream.read(4096)).upper())

    server = await wireguard.start_wireguard_server(
        "127.0.0.1", 0, keys.server, [wireguard.pubkey(keys.client)], handle_tcp, handle_udp
    )
    host, port = server.getsockname()
    assert str(port) in repr(server)
    async with WgClient.start(**keys.client_options(port)) as client:
        async with client.tcp("10.9.8.7:80") as socket:
            await socket.write(b"hello")
            assert await socket.read() == b"HELLO"
            await socket.close_write()
            assert await socket.read_all() == b""
        async with client.udp("10.9.8.7:80") as socket:
            await socket.write(b"hello")
            assert await socket.read() == b"HELLO"
    await closed.wait()
    server.close()
    await server.wait_closed()


async def test_extra_info_as_programs_rely_on_it():
    keys = Keys.new()
    facts = asyncio.get_running_loop().create_future()

    async def handle(stream: wireguard.Stream) -> None:
        names = ("transport_protocol", "peername", "sockname", "original_src", "original_dst")
        found = {name: stream.get_extra_info(name) for name in names}
        found["remote_endpoint"] = stream.get_extra_info("remote_endpoint", "absent")
        for default in ((), (None,)):
            with pytest.raises(KeyError):
                stream.get_extra_info("remote_endpoint", *default)
        await stream.wait_closed()  # open, and yet at once, as there
        facts.set_result(found)

    server = await start(key=keys.server, peers=[wireguard.pubkey(keys.client)], handle_tcp_stream=handle)
    address = server.getsockname()
    async with WgClient.start(**keys.client_options(address[1])) as client, client.tcp("10.9.8.7:80") as socket:
        found = await facts
        assert found == {
            "transport_protocol": "tcp",
            "peername": ("10.0.0.1", int(socket.local.rpartition(":")[2])),
            "sockname": ("10.9.8.7", 80),
            "original_src": ("127.0.0.1", found["original_src"][1]),
            "original_dst": address,
            "remote_endpoint": "absent",
        }
    server.close()
    await server.wait_closed()

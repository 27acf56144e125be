"""Dialers: streams and datagrams, names, applications."""

import asyncio
import contextlib
import errno

import pytest
from test_connection import COMPONENT, PLAIN

import mitmproxy_watm
from mitmproxy_watm import Applications
from watm_test_support.ports import free_port
from watm_test_support.upper_case import upper
from watm_test_support.wireguard_server import Keys

RESOLVER = "10.0.0.53"
ADDRESS = bytes([10, 9, 8, 7])


def answer(query: bytes) -> bytes:
    """Answers a DNS query with `ADDRESS`, which has no IPv6."""
    question = query[12 : query.index(b"\0", 12) + 5]
    found = question[-4:-2] == b"\0\1"
    record = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + ADDRESS if found else b""
    return query[:2] + b"\x81\x80\0\1" + bytes([0, found]) + bytes(4) + question + record


@contextlib.asynccontextmanager
async def tunnel():
    """Runs echo and DNS servers behind a tunnel. Yields the configuration of a client."""

    async def stream(stream):
        while data := await stream.read(65536):
            stream.write(b"%s:%d " % (stream.get_extra_info("sockname")[0].encode(), len(data)))
            await stream.drain()
        stream.close()

    async def datagrams(stream):
        while data := await stream.read():
            stream.write(answer(data) if stream.get_extra_info("sockname") == (RESOLVER, 53) else data)

    keys = Keys.new()
    handlers = {"handle_tcp_stream": stream, "handle_udp_stream": datagrams}
    async with await mitmproxy_watm.start_server("wireguard", "127.0.0.1", 0, config=keys.config, **handlers) as server:
        yield server.client_configs()[0].content


async def test_a_tunnel_carries_streams_and_datagrams():
    async with tunnel() as config, await mitmproxy_watm.start_dialer("wireguard", config=config) as dialer:
        stream = await dialer.open_connection("10.1.2.3", 80)
        stream.write(b"hello")
        assert await stream.read(100) == b"10.1.2.3:5 "
        datagrams = await dialer.open_datagrams("10.1.2.3", 99)
        for size in (1, 1000, 4000):
            datagrams.write(bytes(size))
            assert await datagrams.read() == bytes(size)
        assert datagrams.get_extra_info("transport_protocol") == "udp"
        assert datagrams.get_extra_info("peername") == ("10.1.2.3", 99)
        status = dialer.status()
        assert (status.phase, status.flows) == ("running", 2)
        assert status.peers[0].sent_bytes > 5000
        single = await mitmproxy_watm.open_datagrams("wireguard", "10.1.2.4", 7, config=config)
        single.write(b"alone")
        assert await single.read() == b"alone"
        for open_one in (stream, datagrams, single):
            open_one.close()


async def test_names_are_looked_up_through_the_tunnel():
    options = {"dns": [RESOLVER]}
    async with tunnel() as config, await mitmproxy_watm.start_dialer("wireguard", config=config, **options) as dialer:
        stream = await dialer.open_connection("inside.test", 80)
        stream.write(b"hello")
        assert await stream.read(100) == b"10.9.8.7:5 "
        stream.close()
    async with tunnel() as config:
        with pytest.raises(OSError, match="cannot resolve names"):
            await mitmproxy_watm.open_connection("wireguard", "inside.test", 80, config=config)


@pytest.mark.parametrize("dns", [[], ["nonsense"], ["host", "10.0.0.1"]], ids=str)
async def test_who_looks_names_up_is_an_address_or_the_host(dns):
    with pytest.raises(ValueError, match="dns"):
        await mitmproxy_watm.start_dialer("plain", dns=dns)


@PLAIN
async def test_a_swapped_dialer_goes_on_and_a_closed_one_keeps_what_is_open(module):
    async with upper() as port:
        dialer = await mitmproxy_watm.start_dialer(module, unsealed=True)
        before = await dialer.open_connection("127.0.0.1", port)
        await dialer.swap(module, unsealed=True)
        assert dialer.status().generation == 1
        after = await dialer.open_connection("127.0.0.1", port)
        dialer.close()
        dialer.close()
        assert dialer.is_closed
        for stream in (before, after):
            stream.write(b"hello")
            assert await stream.read(100) == b"HELLO"
            stream.close()
        with pytest.raises(OSError, match="closed"):
            await dialer.open_connection("127.0.0.1", port)
        with pytest.raises(OSError, match="closed"):
            dialer.status()


async def test_what_cannot_be_dialed_says_why():
    async with await mitmproxy_watm.start_dialer("plain", name="there") as dialer:
        with pytest.raises(ConnectionRefusedError, match="there: connection refused"):
            await dialer.open_connection("127.0.0.1", free_port())
        with pytest.raises(OSError, match="no datagrams") as caught:
            await dialer.open_datagrams("127.0.0.1", 1)
        assert caught.value.errno == errno.EOPNOTSUPP
        with pytest.raises(ValueError, match="host, port: required"):
            await dialer.open_connection()
    with pytest.raises(ValueError, match="udp"):
        await mitmproxy_watm.start_dialer(COMPONENT, unsealed=True, udp="nowhere")


async def test_a_fixed_dialer_goes_where_its_configuration_says():
    async with upper() as port:
        options = {"config": f'remote = "127.0.0.1:{port}"', "fixed": True}
        async with await mitmproxy_watm.start_dialer("plain", allow=["127.0.0.1"], **options) as dialer:
            stream = await dialer.open_connection()
            stream.write(b"hello")
            assert await stream.read(100) == b"HELLO"
            stream.close()
        async with await mitmproxy_watm.start_dialer("plain", **options) as dialer:
            with pytest.raises(PermissionError):
                await dialer.open_connection("127.0.0.1", port)


async def test_a_dialer_is_for_the_applications_of_its_rules():
    rules = Applications(allowed=("firefox",))
    async with upper() as port, await mitmproxy_watm.start_dialer("plain", applications=rules) as dialer:
        (await dialer.open_connection("127.0.0.1", port, application="/usr/bin/Firefox")).close()
        with pytest.raises(PermissionError, match="is unknown"):
            await dialer.open_connection("127.0.0.1", port)
        with pytest.raises(PermissionError, match="curl"):
            await dialer.open_connection("127.0.0.1", port, application="curl")


@pytest.mark.parametrize(
    ("rule", "application", "meant"),
    [
        ("firefox", "firefox", True),
        ("firefox", "C:\\Program Files\\Mozilla\\FIREFOX.EXE", True),
        ("firefox.exe", "firefox", True),
        ("firefox", "/usr/lib/firefox/helper", False),
        ("fire", "firefox", False),
        ("/usr/lib/firefox", "/usr/lib/firefox/helper", True),
        ("/usr/lib/firefox/", "/usr/lib/firefox-esr/helper", False),
        ("C:\\Games", "c:\\games\\one\\play.exe", True),
        ("/opt/app", "/opt/app", True),
        ("/opt/app", "app", False),
    ],
)
def test_rules_name_programs_and_folders(rule, application, meant):
    assert Applications(allowed=(rule,)).admits(application) == meant
    assert Applications(disallowed=(rule,)).admits(application) != meant
    assert not Applications(allowed=(rule,), disallowed=(rule,)).admits(application)


def test_rules_are_taken_from_a_configuration_of_wireguard():
    config = "[Interface]\nA = 1\n[Peer]\nAllowedApps = Chrome, /opt/x\n#@ws:DisallowedApps = curl\nB = 2\n"
    rest, rules = Applications.of_wireguard(config)
    assert rest == "[Interface]\nA = 1\n[Peer]\n\n\nB = 2\n"
    assert rules == Applications(allowed=("Chrome", "/opt/x"), disallowed=("curl",))
    assert Applications.of_wireguard("[Peer]\nB = 2\n") == ("[Peer]\nB = 2\n", None)
    peers = "[Peer]\nAllowedApps = a\n[Peer]\n"
    for wrong in (peers, peers + "AllowedApps = b\n"):
        with pytest.raises(ValueError, match="must be the same for all peers"):
            Applications.of_wireguard(wrong)
    assert Applications.of_wireguard(peers + "AllowedApps = a\n")[1] == Applications(allowed=("a",))
    with pytest.raises(ValueError, match="line 2: AllowedApps: missing application name"):
        Applications.of_wireguard("[Peer]\nAllowedApps =\n")


async def test_many_dials_at_once_share_an_instance():
    async with tunnel() as config, await mitmproxy_watm.start_dialer("wireguard", config=config) as dialer:

        async def one(number: int) -> None:
            stream = await dialer.open_connection(f"10.1.0.{number}", 80)
            stream.write(b"x" * number)
            assert await stream.read(100) == b"10.1.0.%d:%d " % (number, number)
            stream.close()

        await asyncio.gather(*(one(number) for number in range(1, 100)))
        assert dialer.status().used.instances == 1

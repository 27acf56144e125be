"""Captured packets and keys of tunnels in Python and mitmproxy, read by Wireshark."""

import json
import logging
import re
import stat
from pathlib import Path

import pytest

import mitmproxy_watm
from watm_test_support.sniffer import pages, sniffing
from watm_test_support.wgclient import WgClient
from watm_test_support.wireguard_server import Keys

from .ends import INSIDE, proxy, upstream, vpn, written

# The request and the answer.
CONVERSATION = [["GET", ""], ["", "200"]]
REQUEST = b"GET / HTTP/1.1\r\nHost: inside.test\r\nConnection: close\r\n\r\n"


def files(folder: Path, name: str) -> dict[str, Path]:
    """Returns the files to write, as keyword arguments."""
    return {"pcap": folder / f"{name}.pcapng", "key_log": folder / f"{name}.keys"}


def told(wanted: dict[str, Path]) -> list[str]:
    """The beginning of the status text of a capture."""
    return [f"all packets, unencrypted, to {wanted['pcap']}", f"keys of all tunnels to {wanted['key_log']}"]


def check_told(captures: list[str], wanted: dict[str, Path]) -> None:
    assert [text.partition(": ")[0] for text in captures] == told(wanted)


def check_private(wanted: dict[str, Path]) -> None:
    assert [stat.S_IMODE(path.stat().st_mode) for path in wanted.values()] == [0o600] * 2


async def test_a_server_of_pythons(tmp_path, caplog) -> None:
    async def handle(stream: mitmproxy_watm.Stream) -> None:
        await stream.readuntil(b"\r\n\r\n")
        stream.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nthere")
        stream.close()

    keys, wanted = Keys.new(), files(tmp_path, "server")
    options = {"config": keys.config, "handle_tcp_stream": handle} | wanted
    async with await mitmproxy_watm.start_server("wireguard", "127.0.0.1", 0, **options) as server:
        async with sniffing(server.getsockname()[1]) as between, WgClient.start(**keys.client_options(between.port)) as client:
            assert (await client.do("http", url=f"http://{INSIDE}/"))["status"] == 200
        check_told(server.status().captures, wanted)
    loud = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert any("all packets unencrypted" in message for message in loud), loud
    assert any("has the local private key" in message for message in loud), loud
    check_private(wanted)
    assert await pages(wanted["pcap"]) == CONVERSATION
    assert await between.pages(tmp_path / "outer.pcap", wanted["key_log"]) == ([], CONVERSATION)

    known = {path: path.read_bytes() for path in wanted.values()}
    with pytest.raises(ValueError, match="already exists and is not overwritten"):
        await mitmproxy_watm.start_server("wireguard", "127.0.0.1", 0, **options)
    assert {path: path.read_bytes() for path in wanted.values()} == known


async def test_a_dialer_of_pythons(tmp_path) -> None:
    wanted = files(tmp_path, "dialer")
    async with vpn() as config:
        there = re.compile(r"127\.0\.0\.1:(\d+)")
        async with sniffing(int(there.search(config)[1])) as between:
            config = there.sub(f"127.0.0.1:{between.port}", config)
            async with await mitmproxy_watm.start_dialer("wireguard", config=config, **wanted) as dialer:
                stream = await dialer.open_connection(INSIDE, 80)
                stream.write(REQUEST)
                assert (await stream.read()).endswith(b"inside")
                stream.close()
                check_told(dialer.status().captures, wanted)
            # A connection with other options has an instance and files of its own.
            own = files(tmp_path, "connection")
            single = await mitmproxy_watm.open_connection("wireguard", INSIDE, 80, config=config, **own)
            single.write(REQUEST)
            assert (await single.read()).endswith(b"inside")
            single.close()
    for each in (wanted, own):
        check_private(each)
        assert await pages(each["pcap"]) == CONVERSATION
    outer = tmp_path / "outer.pcap"
    for each in (wanted, own):
        assert await between.pages(outer, each["key_log"]) == ([], CONVERSATION)


async def test_what_has_no_tunnels_or_failed_to_start_leaves_no_file(tmp_path) -> None:
    wanted = files(tmp_path, "none")
    for module, complaint in (("plain", "cannot copy packets or keys"), ("wireguard", "configuration refused")):
        with pytest.raises(ValueError, match=complaint):
            await mitmproxy_watm.start_dialer(module, config="?", **wanted)
        with pytest.raises(ValueError, match=complaint):
            await mitmproxy_watm.open_connection(module, INSIDE, 80, config="?", **wanted)
    assert list(tmp_path.iterdir()) == []


async def test_a_mode_and_an_upstream_of_mitmproxys(tmp_path) -> None:
    inner, outer = files(tmp_path, "inner"), files(tmp_path, "outer")
    keys = Keys.new()
    written(tmp_path, "wireguard.conf", keys.config)

    def options(wanted: dict[str, Path]) -> str:
        return "&".join(f"{name}={path}" for name, path in wanted.items())

    async with vpn() as config:
        conf = written(tmp_path, "wg0.conf", config)
        going = upstream(f"wireguard?config={conf}&{options(outer)}")
        async with proxy(tmp_path, *going, mode=f"watm:wireguard?{options(inner)}") as (program, port):
            for wanted in (inner, outer):
                for name, path in wanted.items():
                    await program.wait_for(f"{'capturing' if name == 'pcap' else 'writing keys'} to {re.escape(str(path))};")
            async with WgClient.start(**keys.client_options(port)) as device, device.tcp(f"{INSIDE}:80") as page:
                await page.write(REQUEST)
                assert (await page.read_all()).endswith(b"inside")
            server, through = json.loads(await program.ask(command="watm.status.json"))
            check_told(server["captures"], inner)
            check_told(through["captures"], outer)
    for wanted in (inner, outer):
        check_private(wanted)
        assert await pages(wanted["pcap"]) == CONVERSATION
        assert "LOCAL_STATIC_PRIVATE_KEY = " in wanted["key_log"].read_text()

"""The bad network of a configuration, of WireGuard and of a device."""

import asyncio
import json
import re
import time
from pathlib import Path

import pytest

from mitmproxy_watm.about import About, about_packaged
from mitmproxy_watm.mode.network import NAMES, network_of, with_network
from watm_test_support.mitmproxy_programs import client, start
from watm_test_support.repository import ROOT
from watm_test_support.upper_case import upper

WIREGUARD, TUN, SHADOWSOCKS = (about_packaged(name) for name in ("wireguard", "tun", "shadowsocks"))
WG = "[Interface]\nPrivateKey = x\n"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (WG, WG + "\n[Watm]\nNetwork = 3g\n"),
        (WG + "[Watm]\nMaxFlows = 9\n", WG + "[Watm]\nNetwork = 3g\nMaxFlows = 9\n"),
        (
            "[watm]\nnetwork=4g\nMaxFlows = 9\nNetwork = dsl\n" + WG,
            "[watm]\nNetwork = 3g\nMaxFlows = 9\n" + WG,
        ),
    ],
)
def test_a_configuration_gets_the_network_in_place_of_its_own(config: str, expected: str) -> None:
    assert with_network(config.encode(), WIREGUARD, "3g").decode() == expected
    assert with_network(expected.encode(), WIREGUARD, "3g").decode() == expected


@pytest.mark.parametrize(
    ("about", "config", "expected"),
    [
        (WIREGUARD, b'{"server_key": "x", "mtu": 1280}', {"server_key": "x", "mtu": 1280, "network": "3g"}),
        (TUN, b'{"mtu": 1280, "network": "off"}', {"mtu": 1280, "network": "3g"}),
        (TUN, b"", {"network": "3g"}),
    ],
)
def test_json_gets_the_network(about: About, config: bytes, expected: dict[str, object]) -> None:
    assert json.loads(with_network(config, about, "3g")) == expected


@pytest.mark.parametrize(
    ("about", "config", "words"),
    [
        (SHADOWSOCKS, b'{"method": "none"}', "3g"),
        (SHADOWSOCKS, WG.encode(), "3g"),
        (None, b"", "3g"),
        (None, WG.encode(), "3g"),
        (WIREGUARD, b"[Peer]", "3g"),
        (WIREGUARD, WG.encode(), "3g\nx"),
        (TUN, b"{}", "3g\nx"),
    ],
)
def test_other_modules_and_several_lines_are_refused(about: About | None, config: bytes, words: str) -> None:
    with pytest.raises(ValueError, match="network: "):
        with_network(config, about, words)


@pytest.mark.parametrize(
    ("about", "config", "words"),
    [
        (WIREGUARD, WG, "off"),
        (WIREGUARD, WG + "[Watm]\nNetwork = 3g # home\n", "3g"),
        (WIREGUARD, "[watm]\nnetwork=4g loss=1%\nMaxFlows = 9\nNetwork = dsl\n" + WG, "4g loss=1%, dsl"),
        (WIREGUARD, WG + "[Watm]\nMaxFlows = 9\n[Peer]\nNetwork = 3g\n", "off"),
        (WIREGUARD, '{"server_key": "x"}', "off"),
        (WIREGUARD, '{"server_key": "x", "network": "train"}', "train"),
        (WIREGUARD, "{", None),
        (TUN, "", "off"),
        (TUN, '{"network": "train"}', "train"),
        (SHADOWSOCKS, '{"method": "none"}', None),
        (SHADOWSOCKS, WG, None),
        (None, "", None),
    ],
)
def test_the_network_of_a_configuration_is_known(about: About | None, config: str, words: str | None) -> None:
    assert network_of(config.encode(), about) == words


def test_bytes_that_are_no_text_have_no_network() -> None:
    assert network_of(b"\xff[Interface]", WIREGUARD) is None


def test_the_names_are_those_of_the_module() -> None:
    page = (ROOT / "docs" / "src" / "networks.md").read_text()
    table = page.partition("## Networks by name")[2].partition("\n## ")[0]
    assert list(NAMES) == ["off", *re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)]


@pytest.mark.limit(60)
async def test_a_command_changes_the_network_of_a_running_server(tmp_path: Path) -> None:
    mode = "watm:wireguard?network=delay=100ms@127.0.0.1:0"
    async with upper() as echo, start("mitmdump-watm", tmp_path, "--mode", mode, "--set", f"echo_port={echo}") as program:
        async with client(tmp_path, await program.port()) as device, device.udp("10.9.8.7:7") as datagrams:

            async def round_trip() -> float:
                begun = time.monotonic()
                await datagrams.write(b"one")
                assert await datagrams.read() == b"ONE"
                return time.monotonic() - begun

            async def change(words: str) -> str | None:
                return await program.ask(command=f"watm.network wireguard {words}")

            await round_trip()
            assert await round_trip() >= 0.2
            assert await change("delay=300ms direction=to-peer") is None
            assert await round_trip() >= 0.3
            assert "'2' is not a share" in (await change("loss=2") or "")
            assert await round_trip() >= 0.3
            assert await change("offline") is None
            await datagrams.write(b"lost")
            await asyncio.sleep(0.5)
            assert "  clients come through a bad network: offline" in await program.ask(command="watm.status")
            assert await change("off") is None
            assert "bad network" not in "".join(await program.ask(command="watm.status"))
            assert await round_trip() < 0.3
            [status] = json.loads(await program.ask(command="watm.status.json"))
            assert status["counters"]["network.lost"] == 1

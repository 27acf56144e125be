"""Configurations from other programs, and the configurations that clients get."""

import configparser
from pathlib import Path

import pytest

import mitmproxy_watm
from mitmproxy_watm.wireguard import genkey
from watm_test_support import web_services
from watm_test_support.tunnels import HOST, V4, Peer, config, preshared_key, serving
from watm_test_support.wgclient import WgClient, WgClientTimeout

from .netns import run


async def test_a_whole_wg_quick_file_with_comments_is_taken() -> None:
    server_key = run("wg", "genkey").strip()
    client_key = run("wg", "genkey").strip()
    shared = run("wg", "genpsk").strip()
    text = f"""# the office
[Interface]
Address = 10.0.0.254/24, fd00::254/64
ListenPort = 51820
PrivateKey = {server_key} # by wg genkey
MTU = 1400

# a laptop
[peer]
publickey={run("wg", "pubkey", stdin=client_key).strip()}
PresharedKey = {shared}
AllowedIPs = 10.0.0.0/28
AllowedIPs = fd00::1/128
PersistentKeepalive = 25
"""
    async with await mitmproxy_watm.start_server(
        "wireguard", HOST, 0, config=text, handle_tcp_stream=web_services.handle_tcp
    ) as server:
        options = {
            "server": f"{HOST}:{server.getsockname()[1]}",
            "private_key": client_key,
            "peer_public_key": run("wg", "pubkey", stdin=server_key).strip(),
            "psk": shared,
            "address": ["10.0.0.14", "fd00::1"],
            "mtu": 1400,
        }
        async with WgClient.start(**options) as client:
            assert (await client.do("echo", messages=5))["messages"] == 5
            assert (await client.do("echo", to="[fd00::99]:7", messages=5, size=20_000))["messages"] == 5


async def test_a_providers_file_is_taken_whole_and_as_wg_quick_strips_it(tmp_path: Path) -> None:
    file = tmp_path / "wg0.conf"
    file.write_text(f"""[Interface]
# Name = a provider's
PRIVATEKEY = {genkey()}
Address = 10.2.0.2/32
Address = fd00::2/128
DNS = 10.2.0.1, example.org
MTU = 1380
Table = 51820
FwMark = 0xca6c
PostUp = iptables -I OUTPUT ! -o %i -m mark ! --mark $(wg show %i fwmark) -j REJECT; true
PostDown = true
SaveConfig = false

[Peer]
publickey = {run("wg", "pubkey", stdin=genkey()).strip()}
PresharedKey = {preshared_key()}
AllowedIPs = 0.0.0.0/0,::/0
Endpoint = 192.0.2.1:51820
PersistentKeepalive = off
""")
    file.chmod(0o600)
    for text in file.read_text(), run("wg-quick", "strip", str(file)):
        server = await mitmproxy_watm.start_server("wireguard", HOST, 0, config=text)
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ("[Interface]\nPrivateKey = short\n", ["PrivateKey", "2"]),
        ("[Interface]\nPrivateKay = x\n", ["PrivateKay", "2"]),
        (f"[Interface]\nPrivateKey = {genkey()}\n[Peer]\nPublicKey = x\n", ["PublicKey", "4"]),
    ],
)
async def test_a_wrong_field_is_named_with_its_line(wrong: str, names: list[str]) -> None:
    with pytest.raises(ValueError) as refused:
        await mitmproxy_watm.start_server("wireguard", HOST, 0, config=wrong)
    for name in names:
        assert name in str(refused.value)


async def test_a_peer_comes_and_goes_by_reconfiguration() -> None:
    first, second = Peer(), Peer(addresses=("10.0.0.2",), preshared_key=preshared_key())
    async with serving(first) as running, running.client(first) as client, running.client(second) as later:
        async with client.tcp(f"{V4}:7") as conn:
            await conn.write(b"before")
            assert await conn.read_exactly(6) == b"before"
            with pytest.raises(WgClientTimeout):
                await later.do("connect", count=1, timeout=1)
            await running.server.reconfigure(config(running.private_key, [first, second]))
            assert (await later.do("connect", count=3, timeout=15))["connections"] == 3
            await conn.write(b"after")
            assert await conn.read_exactly(5) == b"after"
            with pytest.raises(ValueError, match="PrivateKey"):
                await running.server.reconfigure("[Interface]\nPrivateKey = nonsense\n")
            await running.server.reconfigure(config(running.private_key, [first]))
            with pytest.raises(WgClientTimeout):
                await later.do("connect", count=1, timeout=1)
            await conn.write(b"still")
            assert await conn.read_exactly(5) == b"still"


async def test_the_client_configuration_that_is_handed_out_works(tmp_path) -> None:
    # mitmproxy's own format has both keys, so the client's whole file is known.
    text = f'{{"server_key": "{genkey()}", "client_key": "{genkey()}"}}'
    async with await mitmproxy_watm.start_server(
        "wireguard", HOST, 0, config=text, handle_tcp_stream=web_services.handle_tcp
    ) as server:
        [given] = server.client_configs(HOST)
        # wg(8) accepts it in the form that wg-quick passes on.
        file = tmp_path / "wg0.conf"
        file.touch(mode=0o600)
        file.write_text(given.content)
        assert "PrivateKey" in run("wg-quick", "strip", file)

        sections = configparser.ConfigParser()
        sections.read_string(given.content)
        interface, peer = sections["Interface"], sections["Peer"]
        assert "0.0.0.0/0" in peer["AllowedIPs"] and "::/0" in peer["AllowedIPs"]
        options = {
            "server": peer["Endpoint"],
            "private_key": interface["PrivateKey"],
            "peer_public_key": peer["PublicKey"],
            "address": interface["Address"].replace(" ", "").split(","),
        }
        async with WgClient.start(**options) as client:
            assert (await client.do("echo", messages=2))["messages"] == 2
            assert (await client.do("echo", to="[fd00:9::7]:7", messages=2))["messages"] == 2

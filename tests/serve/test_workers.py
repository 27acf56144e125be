"""WireGuard on several workers of `watm serve`: peers that stay where they are, and peers that move."""

import pathlib

import pytest

from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support import tunnels
from watm_test_support.ports import free_port, ports_by_worker
from watm_test_support.repository import MODULES
from watm_test_support.watm_serve import HOST, serving
from watm_test_support.wgclient import WgClient, WgClientError, WgClientTimeout

from .behind import echo

# An inner destination. No host has this address: the server connects to its upstream instead.
INSIDE = f"{tunnels.V4}:7"
# Seconds without an answer. They are fewer than the 15 after which the client begins a handshake by itself, and
# more than the 5 in which it begins no second one.
SILENCE = 6


async def test_a_peer_that_moves_to_another_worker_begins_again(tmp_path: pathlib.Path) -> None:
    port, key, peer = free_port(), genkey(), tunnels.Peer(["10.0.0.1"])
    [here, also_here], [there, _] = ports_by_worker(HOST, port, 2, 2)
    (tmp_path / "wg0.conf").write_text(tunnels.config(key, [peer]))
    options = {"server": f"{HOST}:{port}", "private_key": peer.private_key, "peer_public_key": pubkey(key)}
    with echo() as upstream:
        config = f"""
[[listener]]
name = "wireguard"
module = "{MODULES}/wireguard.wasm"
addresses = ["udp://{HOST}:{port}"]
upstream = "{HOST}:{upstream}"
config-file = "{tmp_path}/wg0.conf"
workers = 2
"""
        with serving(tmp_path / "serve", config):
            async with WgClient.start(**options, address=peer.addresses, listen_port=here) as client:
                async with client.tcp(INSIDE) as flow:
                    for moved in (here, also_here):
                        await client.do("rebind", port=moved)
                        await flow.write(b"here")
                        assert await flow.read() == b"here"
                    await client.do("rebind", port=there)
                    with pytest.raises(WgClientTimeout):
                        await client.do("echo", to=INSIDE, messages=1, timeout=SILENCE)
                    await client.do("handshake")
                    assert (await client.do("echo", to=INSIDE, messages=1))["messages"] == 1
                    with pytest.raises(WgClientError, match="reset"):
                        await flow.write(b"there")
                        await flow.read()

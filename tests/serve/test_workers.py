"""WireGuard on several workers of `watm serve`: peers that stay where they are, and peers that move."""

import asyncio
import pathlib

from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support import tunnels
from watm_test_support.ports import free_port, ports_by_worker
from watm_test_support.repository import MODULES
from watm_test_support.watm_serve import HOST, serving
from watm_test_support.wgclient import WgClient

from .behind import echo

# An inner destination. No host has this address: the server connects to its upstream instead.
INSIDE = f"{tunnels.V4}:7"
# Seconds for an answer. They are fewer than the 15 after which a client begins a handshake by itself.
SOON = 3
# Seconds between two handshakes of a client: WireGuard's five, and the third of a second by which wireguard-go
# delays a repetition.
BETWEEN_HANDSHAKES = 5.5


METRICS = f"""
[metrics]
listen = "{HOST}:0"
"""


def wireguard(port: int, upstream: int, module: pathlib.Path, config: pathlib.Path, more: str = "") -> str:
    return f"""
[[listener]]
name = "wireguard"
module = "{module}"
addresses = ["udp://{HOST}:{port}"]
upstream = "{HOST}:{upstream}"
config-file = "{config}"
{more}
"""


async def test_a_peer_that_moves_to_another_worker_keeps_its_session_and_its_flows(tmp_path: pathlib.Path) -> None:
    port, key, peer = free_port(), genkey(), tunnels.Peer(["10.0.0.1"])
    [here, also_here], [there, _] = ports_by_worker(HOST, port, 2, 2)
    conf = tmp_path / "wg0.conf"
    conf.write_text(tunnels.config(key, [peer]))
    options = {"server": f"{HOST}:{port}", "private_key": peer.private_key, "peer_public_key": pubkey(key)}
    with echo() as upstream:
        config = METRICS + wireguard(port, upstream, MODULES / "wireguard.wasm", conf, "workers = 2")
        with serving(tmp_path / "serve", config) as running:

            def counted(name: str) -> float:
                return running.metric(f"watm_module_wireguard_{name}_total")

            async with WgClient.start(**options, address=peer.addresses, listen_port=here) as client:
                async with client.tcp(INSIDE) as flow:

                    async def answers(text: bytes) -> None:
                        await flow.write(text, timeout=SOON)
                        assert await flow.read(timeout=SOON) == text

                    await answers(b"here")
                    await client.do("rebind", port=there)
                    await answers(b"there")
                    assert counted("handshakes") == 1
                    await asyncio.sleep(BETWEEN_HANDSHAKES)
                    # wireguard-go repeats an initiation by itself if the response came before its timer was set.
                    if counted("handshakes") == 1:
                        await client.do("handshake", timeout=SOON)
                    await answers(b"there, in another session")
                    assert counted("handshakes") == 2
                    await client.do("rebind", port=also_here)
                    await answers(b"here again")
                    assert counted("handshakes") == 2
                    # One of the workers has the peer. One initiation came to the other.
                    assert counted("initiations_passed") == 1
                    assert (await client.do("echo", to=INSIDE, messages=1, timeout=SOON))["messages"] == 1
                    [known] = running.status()["listeners"][0]["peers"]
                    assert known["endpoint"] == f"{HOST}:{also_here}"


def test_a_module_with_other_datagrams_must_not_replace_one_on_several_workers(tmp_path: pathlib.Path) -> None:
    port, key = free_port(), genkey()
    module, conf = tmp_path / "wireguard.wasm", tmp_path / "wg0.conf"
    conf.write_text(tunnels.config(key, [tunnels.Peer(["10.0.0.1"])]))
    bytes_now = (MODULES / "wireguard.wasm").read_bytes()
    module.write_bytes(bytes_now)
    other = bytes_now.replace(b'"type":2,"byte":11', b'"type":2,"byte":12')
    assert other != bytes_now
    with serving(tmp_path / "serve", wireguard(port, 1, module, conf, "workers = 2")) as running:
        module.write_bytes(other)
        running.reload("^watm: .*restart to use it.*; keeping the previous configuration$")
        module.write_bytes(bytes_now)
        conf.write_text(tunnels.config(key, [tunnels.Peer(["10.0.0.2"])]))
        running.reload()


def test_each_core_has_a_worker_unless_the_file_says_otherwise(tmp_path: pathlib.Path) -> None:
    """Checks WireGuard against a module for connections, on the cores of whatever machine this is."""
    conf = tmp_path / "wg0.conf"
    conf.write_text(tunnels.config(genkey(), [tunnels.Peer(["10.0.0.1"])]))
    plain = f"""
[[listener]]
name = "plain"
module = "{MODULES}/plain.wasm"
addresses = ["{HOST}:0"]
upstream = "{HOST}:1"
"""
    config = METRICS + plain + wireguard(free_port(), 1, MODULES / "wireguard.wasm", conf)
    with serving(tmp_path / "serve", config) as running:
        counts = [listener["worker_count"] for listener in running.status()["listeners"]]
        assert len(counts) == 2
        assert counts[0] == counts[1]

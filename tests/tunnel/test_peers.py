"""wireguard-go or boringtun-cli with a real interface and the kernel's TCP: iperf3, curl, and
hundreds of connections. Keys come from wg(8), including a pre-shared key.
"""

import contextlib
import json
import pathlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from watm_test_support.repository import WATM
from watm_test_support.spaces import BORINGTUN, WIREGUARD_GO, Space, run, spaces, wireguard_go

from .programs import WIREGUARD
from .services import MANY, counting, running

INSIDE, OURS = "10.7.0.1", "10.7.0.2"
INSIDE6, OURS6 = "fd00:7::1", "fd00:7::2"
PORT = 51820
IPERF, COUNTED, WEB = 5201, 7000, 8000
# The client's ports on this side.
SOCKS, IPERF_HERE, COUNTED_HERE = 1080, 5202, 7001


@dataclass(frozen=True)
class Both:
    """Yields the namespace of the client, and the one in the tunnel."""

    near: Space
    far: Space


PEERS = [
    pytest.param((WIREGUARD_GO,), id="wireguard-go"),
    pytest.param((BORINGTUN, "--disable-drop-privileges", "--disable-multi-queue"), id="boringtun"),
]


@pytest.fixture(scope="module", params=PEERS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("tunnel")
    (folder / "page").write_text("inside")
    ours, theirs, shared = (run("wg", what).strip() for what in ("genkey", "genkey", "genpsk"))
    public = {key: run("wg", "pubkey", stdin=key).strip() for key in (ours, theirs)}
    server = (
        f"[Interface]\nPrivateKey = {theirs}\nListenPort = {PORT}\n"
        f"[Peer]\nPublicKey = {public[ours]}\nPresharedKey = {shared}\nAllowedIPs = {OURS}/32, {OURS6}/128\n"
    )
    (folder / "client.conf").write_text(
        f"[Interface]\nPrivateKey = {ours}\nAddress = {OURS}/32, {OURS6}/128\n"
        f"[Peer]\nPublicKey = {public[theirs]}\nPresharedKey = {shared}\n"
        f"AllowedIPs = 0.0.0.0/0, ::/0\nEndpoint = 127.0.0.1:{PORT}\n"
    )
    with spaces(2) as (near, far), contextlib.ExitStack() as stack:
        stack.enter_context(wireguard_go(near, far, server, [f"{INSIDE}/24", f"{INSIDE6}/64"], program=request.param))
        stack.enter_context(running(far, "iperf3", "-s", listens=IPERF))
        stack.enter_context(counting(far, INSIDE, COUNTED))
        web = (sys.executable, "-m", "http.server", "--bind", "::", "--directory", folder, WEB)
        stack.enter_context(running(far, *web, listens=WEB))
        stack.enter_context(client(near, folder))
        yield Both(near, far)


def client(near: Space, folder: pathlib.Path) -> contextlib.AbstractContextManager:
    command = [WATM, "dial", "--unsealed", WIREGUARD, "--state", folder / "state.json", "--udp"]
    command += ["--allow", f"udp://127.0.0.1:{PORT}"]
    command += ["--config", folder / "client.conf", "--socks5", f"127.0.0.1:{SOCKS}"]
    command += ["--forward", f"tcp:127.0.0.1:{IPERF_HERE}={INSIDE}:{IPERF}"]
    command += ["--forward", f"tcp:127.0.0.1:{COUNTED_HERE}={INSIDE}:{COUNTED}"]
    return running(near, *command, listens=COUNTED_HERE)


@pytest.mark.parametrize("direction", [[], ["--reverse"]], ids=["up", "down"])
def test_iperf3_goes_through_a_forwarded_port(both: Both, direction: list[str]) -> None:
    command = ["iperf3", "-c", "127.0.0.1", "-p", IPERF_HERE, "-t", "1", "-P", "4", "-J", *direction]
    said = json.loads(both.near.run(*map(str, command)))
    # A hundredth of the rate of a busy machine.
    assert said["end"]["sum_received"]["bytes"] > 1_000_000


@pytest.mark.parametrize("host", [INSIDE, f"[{INSIDE6}]"], ids=["IPv4", "IPv6"])
def test_curl_goes_through_socks(both: Both, host: str) -> None:
    command = ["curl", "-sS", "--max-time", "10", "--socks5", f"127.0.0.1:{SOCKS}", f"http://{host}:{WEB}/page"]
    assert both.near.run(*command) == "inside"


def test_hundreds_of_connections_are_open_at_once_and_half_closed(both: Both) -> None:
    said = both.near.run(sys.executable, "-c", MANY, str(COUNTED_HERE), "400", "100000")
    assert said == "[100000]\n"

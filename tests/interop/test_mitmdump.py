"""mitmdump-watm with several peers that browse through it."""

import contextlib
import json
import pathlib
import sys
from collections.abc import Iterator

import pytest

from mitmproxy_watm.wireguard import genkey, pubkey
from tests.demo import origin
from watm_test_support.children import Child, child
from watm_test_support.ports import free_port
from watm_test_support.repository import ROOT
from watm_test_support.tunnels import HOST, V4, V6, Peer, config, preshared_key
from watm_test_support.wgclient import WgClient

NAME = "watm.test"


class Mitmdump:
    """A running mitmdump-watm and the records of its addon."""

    def __init__(self, process: Child, port: int, public_key: str, folder: pathlib.Path) -> None:
        self.authority = folder / "mitmproxy-ca-cert.pem"
        self._process = process
        self._server = f"{HOST}:{port}"
        self._public_key = public_key
        self._notes = folder / "notes.jsonl"

    def client(self, peer: Peer):
        return WgClient.start(
            server=self._server,
            private_key=peer.private_key,
            peer_public_key=self._public_key,
            psk=peer.preshared_key,
            address=peer.addresses,
        )

    def notes(self, count: int) -> list[dict]:
        """Waits for `count` flows and returns them."""
        self._process.wait_for(
            f"mitmproxy did not see {count} flows", lambda: self._notes.read_text().count("\n") >= count, 10
        )
        return [json.loads(line) for line in self._notes.read_text().splitlines()]


PEERS = [Peer(addresses=(f"10.0.{n}.1", f"fd00:{n}::1"), preshared_key=preshared_key()) for n in (1, 2)]


@pytest.fixture
def mitmdump(tmp_path: pathlib.Path) -> Iterator[Mitmdump]:
    server_key = genkey()
    file = tmp_path / "wg0.conf"
    file.touch(mode=0o600)
    file.write_text(config(server_key, PEERS))
    authority, host_file = origin.certify(tmp_path, NAME)
    (tmp_path / "notes.jsonl").touch()
    with contextlib.ExitStack() as stack:
        servers = stack.enter_context(origin.serve(host_file))
        port = free_port()
        settings = {
            "confdir": tmp_path,
            # Otherwise mitmproxy offers the protocols of the server at the other end.
            "connection_strategy": "lazy",
            "ssl_verify_upstream_trusted_ca": authority,
            "demo_name": NAME,
            "demo_address": V4,
            "demo_notes": tmp_path / "notes.jsonl",
        }
        stands_in = {
            f"{V4}:80": servers["http"],
            f"[{V6}]:80": servers["http"],
            f"{V4}:443": servers["https"],
            f"[{V6}]:4000": servers["udp"],
        }
        command = [
            pathlib.Path(sys.executable).with_name("mitmdump-watm"),
            *("--mode", f"watm:wireguard?config={file}@{HOST}:{port}"),
            *("-s", ROOT / "tests" / "demo" / "addon.py"),
        ]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        for inner, here in stands_in.items():
            command += ["--set", f"demo_servers={inner}={here}"]
        process = stack.enter_context(child("mitmdump-watm", command, tmp_path / "mitmdump.log"))
        process.wait_for("the server did not start", lambda: f"listening at {HOST}:{port}" in process.said(), 60)
        yield Mitmdump(process, port, pubkey(server_key), tmp_path)


@pytest.mark.limit(120)
async def test_peers_browse_and_every_flow_says_whose_it_is(mitmdump: Mitmdump) -> None:
    one, two = PEERS
    secure = {"url": f"https://{NAME}/", "dns_server": "10.0.0.53:53", "ca_file": str(mitmdump.authority)}
    async with mitmdump.client(one) as first, mitmdump.client(two) as second:
        for tcp in (False, True):
            assert (await first.do("dns", name=NAME, tcp=tcp))["addresses"] == [V4]
        pages = [
            await first.do("http", url=f"http://{V4}/"),
            await second.do("http", url=f"http://[{V6}]/"),
            await second.do("http", **secure),
            await second.do("http", **secure, http2=True),
        ]
        assert [(page["status"], page["text"]) for page in pages] == [(200, origin.PAGE.decode())] * 4
        assert [page["protocol"] for page in pages] == ["HTTP/1.1"] * 3 + ["HTTP/2.0"]
        assert ["mitmproxy" in page.get("issuer", "") for page in pages] == [False, False, True, True]
        async with first.udp(f"[{V6}]:4000") as conn:
            await conn.write(b"hello")
            assert await conn.read() == origin.UDP_GREETING + b"hello"
        assert (await first.do("ping", to=V6, count=2))["replies"] == 2

    seen = mitmdump.notes(9)  # two names were resolved for https too
    key = {one.public_key: "one", two.public_key: "two"}
    flows = [(note["kind"], key[note["peer"]], note["to"]) for note in seen]
    assert sorted(flows) == sorted(
        [
            ("dns", "one", "10.0.0.53:53"),
            ("dns", "one", "10.0.0.53:53"),
            ("dns", "two", "10.0.0.53:53"),
            ("dns", "two", "10.0.0.53:53"),
            ("http", "one", f"{V4}:80"),
            ("http", "two", f"[{V6}]:80"),
            ("https", "two", f"{V4}:443"),
            ("https", "two", f"{V4}:443"),
            ("udp", "one", f"[{V6}]:4000"),
        ]
    )
    addresses = {note["from"].rpartition(":")[0].strip("[]") for note in seen}
    assert addresses == {"10.0.1.1", "10.0.2.1", "fd00:1::1", "fd00:2::1"}


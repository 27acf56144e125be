"""A server with its peers, and clients for them."""

import base64
import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import mitmproxy_watm
from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support import web_services
from watm_test_support.wgclient import WgClient

HOST = "127.0.0.1"
# Inner destinations. No host has these addresses: the server answers for all.
V4, V6 = "10.9.8.7", "fd00:9::7"


@dataclass
class Peer:
    """A client's keys and the inner addresses that it may use."""

    addresses: Sequence[str] = ("10.0.0.1", "fd00::1")
    preshared_key: str | None = None
    # Networks in place of the addresses alone.
    allowed_ips: Sequence[str] | None = None
    private_key: str = field(default_factory=genkey)

    @property
    def public_key(self) -> str:
        return pubkey(self.private_key)

    def section(self) -> str:
        """Returns the peer's section of the server's configuration."""
        allowed = self.allowed_ips or [f"{a}/{128 if ':' in a else 32}" for a in self.addresses]
        lines = ["[Peer]", f"PublicKey = {self.public_key}", f"AllowedIPs = {', '.join(allowed)}"]
        if self.preshared_key:
            lines.append(f"PresharedKey = {self.preshared_key}")
        return "\n".join(lines) + "\n"


def preshared_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


@dataclass
class Running:
    """A running server and its address."""

    server: mitmproxy_watm.Server
    private_key: str

    @property
    def public_key(self) -> str:
        return pubkey(self.private_key)

    def client(self, peer: Peer, **options):
        """Runs wgclient as `peer`; `options` are its flags, instead of the usual ones."""
        usual = {
            "server": f"{HOST}:{self.server.getsockname()[1]}",
            "private_key": peer.private_key,
            "peer_public_key": self.public_key,
            "address": peer.addresses,
        }
        if peer.preshared_key:
            usual["psk"] = peer.preshared_key
        return WgClient.start(**usual | options)


def config(private_key: str, peers: Sequence[Peer], interface: str = "") -> str:
    """Returns a configuration in the format of wg(8)."""
    sections = [f"[Interface]\nPrivateKey = {private_key}\n{interface}\n", *(peer.section() for peer in peers)]
    return "\n".join(sections)


@contextlib.asynccontextmanager
async def serving(
    *peers: Peer,
    handle_tcp=web_services.handle_tcp,
    handle_udp=web_services.handle_udp,
    interface: str = "",
    private_key: str | None = None,
    module: mitmproxy_watm.modules.AnyModule = "wireguard",
    **options,
) -> AsyncIterator[Running]:
    """Runs a server for the block."""
    private_key = private_key or genkey()
    async with await mitmproxy_watm.start_server(
        module,
        HOST,
        0,
        config=config(private_key, peers, interface),
        handle_tcp_stream=handle_tcp,
        handle_udp_stream=handle_udp,
        **options,
    ) as server:
        yield Running(server, private_key)

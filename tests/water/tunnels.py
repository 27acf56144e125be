"""WireGuard as a module for WATER's runtimes: both ends of a tunnel."""

import pathlib
from dataclasses import dataclass

from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support.repository import MODULES

from .modules import Module

WIREGUARD = Module("own-wireguard", MODULES / "wireguard.watm1.wasm", turns=False, destination="", own=True)
WIREGUARD_COMPONENT = Module("own-wireguard-component", MODULES / "wireguard.wasm", turns=False, destination="", own=True)

# The client's destination in the tunnel. No host has the address: the server answers for all.
TARGET = "10.9.8.7:80"


@dataclass(frozen=True)
class Tunnel:
    """The configurations of both ends."""

    server: str
    client: str
    folder: pathlib.Path

    def serving(self) -> str:
        """Returns the flag for the server."""
        return self._flag("server.conf", self.server)

    def dialling(self, endpoint: str | None = None, target: str | None = TARGET) -> str:
        """Returns the flag for the client. `endpoint` is the server's address if the caller names none."""
        text = self.client
        if endpoint:
            text += f"Endpoint = {endpoint}\n"
        if target:
            text += f"[Watm]\nTarget = {target}\n"
        return self._flag("client.conf", text)

    def _flag(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return f"--config={path}"


def tunnel(folder: pathlib.Path) -> Tunnel:
    """Makes keys for both ends."""
    server, client = genkey(), genkey()
    return Tunnel(
        server=f"[Interface]\nPrivateKey = {server}\n[Peer]\nPublicKey = {pubkey(client)}\nAllowedIPs = 10.0.0.1/32\n",
        client=f"[Interface]\nPrivateKey = {client}\nAddress = 10.0.0.1/32\n"
        f"[Peer]\nPublicKey = {pubkey(server)}\nAllowedIPs = 0.0.0.0/0\n",
        folder=folder,
    )

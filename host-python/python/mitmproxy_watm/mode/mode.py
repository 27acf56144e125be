"""The mode's specification, as mitmproxy keeps it."""

import dataclasses

from mitmproxy.proxy.mode_specs import WireGuardMode

from mitmproxy_watm.mode import spec


class WatmMode(WireGuardMode):
    """A transport in a sandbox: `watm:MODULE[?option=value&...][@[host:]port]`.

    It is a kind of WireGuard mode, so that mitmproxy treats its DNS address and the addresses
    of its connections as it does there.
    """

    parsed: spec.Data
    description = "module"

    def __post_init__(self) -> None:
        self.parsed = spec.parse(self.data)
        self.description = "WireGuard server" if self.parsed.is_wireguard else f"{self.parsed.name} server"
        # Until the module is loaded, and says it.
        self.transport_protocol = self.parsed.transport or "both"

    def listen_host(self, default: str | None = None) -> str:
        """Where to listen; an IPv6 address may stand in brackets."""
        return super().listen_host(default).removeprefix("[").removesuffix("]")

    def get_state(self) -> str:
        """What a saved flow says of its mode: one that every mitmproxy can read."""
        return "wireguard"

    def set_state(self, state: str) -> None:
        """Accepts what `get_state` gives and the full specification; both change nothing."""
        if state not in ("wireguard", self.full_spec):
            raise dataclasses.FrozenInstanceError("Proxy modes are immutable.")

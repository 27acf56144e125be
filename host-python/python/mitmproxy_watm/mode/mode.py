"""The specification of the mode, in mitmproxy's form."""

import dataclasses

from mitmproxy.proxy.mode_specs import WireGuardMode

from mitmproxy_watm.mode import spec


class WatmMode(WireGuardMode):
    """A transport in a sandbox: `watm:MODULE[?option=value&...][@[host:]port]`.

    It is a kind of WireGuard mode, so that mitmproxy treats its DNS address and the addresses of
    its connections in the same way.
    """

    parsed: spec.Data
    description = "module"

    def __post_init__(self) -> None:
        self.parsed = spec.parse(self.data)
        self.description = f"{self.parsed.title} server"
        if (about := self.parsed.about) is not None and about.port is not None:
            self.default_port = about.port
        # Valid until the module is loaded and reports its own.
        self.transport_protocol = self.parsed.options.transport or "both"

    def listen_host(self, default: str | None = None) -> str:
        """Returns the address to listen on. Removes the brackets of an IPv6 address."""
        return super().listen_host(default).removeprefix("[").removesuffix("]")

    def get_state(self) -> str:
        """Returns the mode for saved flows: one that every mitmproxy can read."""
        return "wireguard"

    def set_state(self, state: str) -> None:
        """Accepts the result of `get_state` and the full specification; neither changes anything."""
        if state not in ("wireguard", self.full_spec):
            raise dataclasses.FrozenInstanceError("Proxy modes are immutable.")

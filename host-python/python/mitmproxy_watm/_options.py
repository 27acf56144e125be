"""The options of running modules."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mitmproxy_watm._native import Launched, Module
from mitmproxy_watm._native_options import AnyPath, DialOptions
from mitmproxy_watm.applications import Applications
from mitmproxy_watm.limits import Limits
from mitmproxy_watm.modules import Transport
from mitmproxy_watm.updates import AnyUpdates

ANY_PORT = "[::]:0"
"""The default address of UDP sockets."""


@dataclass(frozen=True, kw_only=True)
class ModuleOptions:
    """The options of one running module: a server's, a dialer's or a single connection's.

    `start_server`, `open_connection` and `start_dialer` describe them.
    """

    config: str | bytes | None = None
    keys: Mapping[str, AnyPath] = field(default_factory=dict)
    limits: Limits = Limits()
    name: str | None = None
    unsealed: bool = False
    pcap: AnyPath | None = None
    pcap_size: int | None = None
    pcap_files: int | None = None
    key_log: AnyPath | None = None
    updates: AnyUpdates | None = None

    # For servers alone.
    transport: Transport | None = None
    host_crypto: bool = True
    ipv6_only: bool = False
    device: Launched | str | None = None
    record: AnyPath | None = None

    # For modules that dial.
    allow: Iterable[str] = ()
    udp: str | bool | None = None
    dns: Sequence[str] | None = None
    fixed: bool = False
    applications: Applications | None = None

    @property
    def content(self) -> bytes | None:
        """The configuration as bytes."""
        return self.config.encode() if isinstance(self.config, str) else self.config

    def dialing(self, module: Module) -> DialOptions:
        """Returns what the native half needs to dial through a loaded module."""
        return {
            "config": self.content,
            "allow": list(self.allow),
            "keys": list(self.keys.items()),
            "limits": self.limits,
            "name": self.name or module.name,
            "udp": self._socket_of(module),
            "dns": None if self.dns is None else list(self.dns),
            "pcap": self.pcap,
            "pcap_size": self.pcap_size,
            "pcap_files": self.pcap_files,
            "key_log": self.key_log,
        }

    def _socket_of(self, module: Module) -> str | None:
        """Returns the address of a component's UDP socket, if it is granted one."""
        if isinstance(self.udp, str):
            return self.udp
        wanted = self.udp
        if wanted is None:
            granted = module.granted
            wanted = "udp" in module.listens_on and (granted is None or "udp listen" in granted.sockets)
        return ANY_PORT if wanted else None

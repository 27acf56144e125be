"""The status of the mode's servers."""

from pathlib import Path
from typing import Any

from mitmproxy import ctx

from mitmproxy_watm._native import Capabilities, Module, Status
from mitmproxy_watm.mode.instance import WatmInstance
from mitmproxy_watm.updates import Updates

SEAL = ("name", "release", "version", "expires", "delegation", "signers", "root", "root_version")
"""Fields of a seal in the status."""


CAPABILITIES = (
    "sockets",
    "connect",
    "host_crypto",
    "bind_transparent",
    "host_keys",
    "capture",
    "memory_bytes",
    "cpu_permille",
    "flows",
    "instances",
)
"""Fields of requested and granted capabilities in the status."""


USED = (
    "sockets",
    "host_crypto",
    "host_keys",
    "memory_bytes",
    "memory_peak_bytes",
    "cpu_permille",
    "flows",
    "flows_opened",
    "instances",
)
"""Fields of usage in the status, besides destinations."""

PEER = ("name", "endpoint", "last_handshake", "received_bytes", "sent_bytes", "round_trip", "loss")
"""Fields of a peer in the status."""

UPDATES = ("source", "every", "checked", "name", "release", "waiting", "more", "file", "error", "code", "warnings")
"""Fields of a source of newer modules in the status."""


def instances() -> list[WatmInstance]:
    """Returns the servers of the mode, running or not."""
    return [server for server in ctx.master.addons.get("proxyserver").servers if isinstance(server, WatmInstance)]


def describe(instance: WatmInstance) -> dict[str, Any]:
    """Describes a server's state in plain types."""
    facts: dict[str, Any] = {
        "spec": instance.mode.full_spec,
        "running": instance.is_running,
        "error": str(instance.last_exception) if instance.last_exception else None,
        "listen_addrs": instance.listen_addrs,
    }
    if instance.server is not None:
        status = instance.server.status()
        facts |= facts_of(status, status.module or instance.module, instance.server.updates)
        facts["swap_error"] = instance.swap_error
        facts["network"] = instance.network
    return facts


def facts_of(status: Status, module: Module | None, updates: Updates | None) -> dict[str, Any]:
    """Describes the state of a running module."""
    seal = None if module is None else module.seal
    facts: dict[str, Any] = {"seal": None if seal is None else {name: getattr(seal, name) for name in SEAL}}
    facts["warnings"] = [] if module is None else module.warnings
    facts |= {"asked": _plain(status.asked), "granted": _plain(status.granted), "used": _used(status)}
    plain = ("phase", "reason", "generation", "flows", "counters", "captures")
    facts |= {name: getattr(status, name) for name in plain}
    facts["updates"] = None if updates is None else {name: _text(getattr(updates.status, name)) for name in UPDATES}
    of_each = ("number", "module", "sha256", "flows", "age", "draining")
    facts["generations"] = [{name: getattr(known, name) for name in of_each} for known in status.generations]
    facts["peers"] = [{name: getattr(peer, name) for name in PEER} for peer in status.peers]
    return facts


def _used(status: Status) -> dict[str, Any]:
    used: dict[str, Any] = {name: getattr(status.used, name) for name in USED}
    of_each = ("target", "connections", "failures")
    used["destinations"] = [{name: getattr(known, name) for name in of_each} for known in status.used.destinations]
    return used | {"cpu_seconds": status.counters.get("host.guest_time_ns", 0) / 1e9}


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _plain(capabilities: Capabilities | None) -> dict[str, Any] | None:
    return None if capabilities is None else {name: getattr(capabilities, name) for name in CAPABILITIES}

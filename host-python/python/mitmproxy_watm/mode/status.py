"""How the servers of the mode are doing."""

from typing import Any

from mitmproxy import ctx

from mitmproxy_watm._native import Capabilities
from mitmproxy_watm.mode.instance import WatmInstance

SEAL = ("name", "release", "version", "expires", "delegation", "signers", "root", "root_version")
"""What a status says of a seal."""


CAPABILITIES = ("sockets", "connect", "host_crypto", "memory_bytes", "cpu_permille", "flows", "instances")
"""What a status says of what a module asks for, and may have."""


def instances() -> list[WatmInstance]:
    """The servers of the mode, running or not."""
    return [server for server in ctx.master.addons.get("proxyserver").servers if isinstance(server, WatmInstance)]


def describe(instance: WatmInstance) -> dict[str, Any]:
    """A server's state in plain types."""
    facts: dict[str, Any] = {
        "spec": instance.mode.full_spec,
        "running": instance.is_running,
        "error": str(instance.last_exception) if instance.last_exception else None,
        "listen_addrs": instance.listen_addrs,
    }
    if instance.server is not None and (module := instance.module) is not None:
        seal = module.seal
        facts["seal"] = None if seal is None else {name: getattr(seal, name) for name in SEAL}
        facts["warnings"] = module.warnings
        facts |= {"asked": _plain(module.asked), "granted": _plain(module.granted)}
        status = instance.server.status()
        facts["used"] = {
            "memory_bytes": status.counters.get("host.memory_bytes", 0),
            "cpu_seconds": status.counters.get("host.guest_time_ns", 0) / 1e9,
            "flows": status.flows,
        }
        facts |= {name: getattr(status, name) for name in ("phase", "reason", "generation", "flows", "counters")}
        facts["swap_error"] = instance.swap_error
        of_each = ("number", "module", "sha256", "flows", "age", "draining")
        facts["generations"] = [{name: getattr(known, name) for name in of_each} for known in status.generations]
        names = ("name", "endpoint", "last_handshake", "received_bytes", "sent_bytes")
        facts["peers"] = [{name: getattr(peer, name) for name in names} for peer in status.peers]
    return facts


def _plain(capabilities: Capabilities | None) -> dict[str, Any] | None:
    return None if capabilities is None else {name: getattr(capabilities, name) for name in CAPABILITIES}

"""How the servers of the mode are doing."""

from typing import Any

from mitmproxy import ctx

from mitmproxy_watm.mode.instance import WatmInstance


SEAL = ("name", "release", "version", "expires", "delegation", "signers", "root", "root_version")
"""What a status says of a seal."""


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
        status = instance.server.status()
        facts |= {name: getattr(status, name) for name in ("phase", "reason", "generation", "flows", "counters")}
        facts["swap_error"] = instance.swap_error
        of_each = ("number", "module", "sha256", "flows", "age", "draining")
        facts["generations"] = [{name: getattr(known, name) for name in of_each} for known in status.generations]
        names = ("name", "endpoint", "last_handshake", "received_bytes", "sent_bytes")
        facts["peers"] = [{name: getattr(peer, name) for name in names} for peer in status.peers]
    return facts

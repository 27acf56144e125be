"""The status of upstreams."""

from typing import Any

from mitmproxy import ctx

from mitmproxy_watm.mode.status import facts_of
from mitmproxy_watm.upstream.upstream import Upstream

NAME = "watm_upstreams"
"""The name of the addon that has them."""


def describe(upstream: Upstream) -> dict[str, Any]:
    """Describes an upstream's state in plain types."""
    dialer = upstream.dialer
    facts: dict[str, Any] = {
        "upstream": upstream.spec.name,
        "spec": upstream.spec.shown,
        "through": upstream.spec.through,
        "running": dialer is not None,
        "error": upstream.error,
    }
    if dialer is not None:
        status = dialer.status()
        facts |= facts_of(status, status.module, dialer.updates)
        facts["swap_error"] = upstream.swap_error
    return facts


def upstreams() -> list[Upstream]:
    """Returns the upstreams of the running mitmproxy."""
    addon = ctx.master.addons.get(NAME)
    return [] if addon is None else list(addon.upstreams.values())

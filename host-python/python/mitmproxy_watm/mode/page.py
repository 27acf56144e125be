"""The page at /watm in mitmweb: each server's state, peers, and client configurations."""

import logging
import time
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakSet

from mitmproxy import ctx

from mitmproxy_watm._native import ClientConfig
from mitmproxy_watm.mode.qr import TOO_LONG, qr_svg
from mitmproxy_watm.mode.status import CAPABILITIES, describe, instances
from mitmproxy_watm.upstream.status import describe as describe_upstream
from mitmproxy_watm.upstream.status import upstreams
from mitmproxy_watm.upstream.upstream import Upstream

logger = logging.getLogger(__name__)

PATH = "/watm"

LONG = 20
"""The length from which a word is broken where a table has no room for it."""

_NUMERIC_HOST = r"^(localhost|[0-9.]+|\[[0-9a-fA-F:]+\])$"
"""Hosts that are accepted without a login: a page with keys must not be reachable by DNS rebinding."""


def install() -> None:
    """Add the page to mitmweb, if that is running, and log its address."""
    application = getattr(ctx.master, "app", None)
    try:
        from mitmproxy.tools.web.app import Application
    except ImportError:
        return
    if not isinstance(application, Application):
        return
    if application not in _installed:
        from mitmproxy_watm.mode.handlers import handlers

        _installed.add(application)
        application.add_handlers(r".*" if _has_login(application) else _NUMERIC_HOST, handlers)
        # In front of mitmweb's own rules, of which one is replaced.
        rules = application.default_router.rules
        rules.insert(0, rules.pop(-2))
    logger.info("Servers, client configurations and QR codes: %s", _address())


def render(token: str) -> str:
    """Returns the whole page, with the token for its forms."""
    template = _asset("page.html").replace("{{ token }}", escape(token))
    return template.replace("{{ servers }}", render_servers())


def render_servers() -> str:
    """Returns the part of the page that changes."""
    servers = instances()
    sections = [_server(number, instance) for number, instance in enumerate(servers)]
    sections += [_upstream(number, upstream) for number, upstream in enumerate(upstreams(), start=len(servers))]
    return "\n".join(sections) or (
        "<p>No transport module is loaded. Load one with the command <code>watm.load</code>, or, to connect to servers "
        "through it, with <code>watm.upstream.load</code>.</p>"
    )


def asset(name: str) -> str:
    """Returns a file that the page refers to."""
    return _asset(name)


_installed: WeakSet[Any] = WeakSet()


def _has_login(application: Any) -> bool:
    return "is_valid_password" in application.settings


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text()


def _address() -> str:
    """Returns the address of the page, with the token for login if there is one."""
    options = ctx.options
    host = f"[{options.web_host}]" if ":" in options.web_host else options.web_host
    url = urlsplit(getattr(ctx.master, "web_url", f"http://{host}:{options.web_port}/"))
    return urlunsplit(url._replace(path=PATH))


def _server(number: int, instance: Any) -> str:
    facts = describe(instance)
    heading = f"server-{number}"
    parts = [
        f'<section aria-labelledby="{heading}" data-spec="{escape(facts["spec"])}">',
        f'<h2 id="{heading}">{escape(facts["spec"])}</h2>',
        f'<div data-live="state-{number}">',
        _state(facts),
        _seal(facts),
        _updates(facts),
        _peers(facts.get("peers", [])) if instance.is_running else "",
        _generations(facts.get("generations", [])),
        _grants(facts) if instance.is_running else "",
        "</div>",
    ]
    if instance.is_running:
        parts += [
            _counters(number, facts),
            _swap(number, facts["spec"]),
            *(_client(number, index, config) for index, config in enumerate(instance.client_configs())),
        ]
    return "\n".join([*parts, "</section>"])


def _upstream(number: int, upstream: Upstream) -> str:
    facts = describe_upstream(upstream)
    heading = f"server-{number}"
    name = escape(facts["upstream"])
    parts = [
        # Its options may name files, and commands take its name.
        f'<section aria-labelledby="{heading}" data-spec="{name}">',
        f'<h2 id="{heading}">Upstream {name}</h2>',
        f'<div data-live="state-{number}">',
        f"<p><code>{escape(facts['spec'])}</code></p>",
        _state(facts),
        _seal(facts),
        _updates(facts),
        _peers(facts.get("peers", [])) if facts["running"] else "",
        _generations(facts.get("generations", [])),
        _grants(facts) if facts["running"] else "",
        "</div>",
    ]
    if facts["running"]:
        parts += [_counters(number, facts), _swap(number, facts["upstream"])]
    return "\n".join([*parts, "</section>"])


def _counters(number: int, facts: dict[str, Any]) -> str:
    rows = ((name, str(value)) for name, value in sorted(facts["counters"].items()))
    return (
        f'<details data-keep="counters-{number}"><summary>Counters</summary><div data-live="counters-{number}">'
        f"{_table(('Counter', 'Value'), rows)}</div></details>"
    )


def _state(facts: dict[str, Any]) -> str:
    if not facts["running"]:
        return f'<p class="bad">Not running. {escape(facts["error"] or "")}</p>'
    where = " and ".join(f"{host} port {port}" for host, port in facts.get("listen_addrs", ()))
    state = facts["phase"] + (f": {facts['reason']}" if facts["reason"] else "")
    kind = "good" if facts["phase"] == "running" else "bad"
    count = facts["counters"].get("host.restarts")
    restarts = f", restarted {count} times" if count else ""
    said = [facts["swap_error"]] if facts["swap_error"] else []
    said += [f"Writes {capture}." for capture in facts["captures"]]
    return (
        f'<p><span class="{kind}">{escape(state)}</span>{" on " if where else ""}{escape(where)}, '
        f"{facts['flows']} open flows{restarts}</p>"
        + "".join(f'<p class="bad">{escape(text)}</p>' for text in said)
    )


def _generations(generations: list[dict[str, Any]]) -> str:
    rows = [
        (
            str(known["number"]),
            known["module"],
            known["sha256"][:16],
            str(known["flows"]),
            _span(known["age"]),
            "serves" if known["draining"] is None else f"finishes its flows, for {_span(known['draining'])}",
        )
        for known in generations
    ]
    return _table(("Generation", "Module", "SHA-256", "Flows", "Age", "State"), rows) if rows else ""


def _swap(number: int, spec: str) -> str:
    return (
        f'<form class="swap" data-swap="{escape(spec)}"><label for="swap-{number}">Swap in the module</label> '
        f'<input id="swap-{number}" name="module" required placeholder="PATH.wasm, or a name"> '
        "<button>Swap</button></form>"
    )


def _seal(facts: dict[str, Any]) -> str:
    if not facts["running"]:
        return ""
    seal = facts["seal"]
    said = "Not sealed."
    if seal is not None:
        version = f" ({seal['version']})" if seal["version"] else ""
        said = f"Sealed as {seal['name']} {seal['release']}{version}."
    warnings = "".join(f'<p class="bad">{escape(warning)}</p>' for warning in facts["warnings"])
    return f"<p>{escape(said)}</p>{warnings}"


def _updates(facts: dict[str, Any]) -> str:
    """Returns the source of newer modules, and its results."""
    updates = facts.get("updates")
    if updates is None:
        return ""
    looked = "not checked yet" if updates["checked"] is None else f"checked {_age(time.time() - updates['checked'])}"
    serves = f", {updates['name']} {updates['release']} from there is running" if updates["release"] else ""
    parts = [f"<p>Updates: {escape(updates['source'])}, every {_span(updates['every'])}, {looked}{escape(serves)}.</p>"]
    if updates["waiting"]:
        more = ", ".join(updates["more"])
        asks = f"Release {updates['waiting']} asks for more than is approved, and waits: {more}."
        command = f"watm.approve {facts['spec']} {updates['waiting']}"
        parts.append(f'<p class="bad">{escape(asks)} <code>{escape(command)}</code> approves it.</p>')
    said = ([updates["error"]] if updates["error"] else []) + updates["warnings"]
    return "".join(parts + [f'<p class="bad">{escape(text)}</p>' for text in said])


def _grants(facts: dict[str, Any]) -> str:
    """Returns the requested, granted and used capabilities."""
    used = facts["used"]

    def most(what: dict[str, Any] | None, name: str) -> str:
        return "not sealed" if what is None else said(what[name])

    def said(value: Any) -> str:
        return ", ".join(value) or "none" if isinstance(value, list) else str(value)

    now = used | {"connect": [_destination(known) for known in used["destinations"]]}
    now["memory_bytes"] = f"{_size(used['memory_bytes'])}, at most {_size(used['memory_peak_bytes'])}"
    now["flows"] = f"{used['flows']}, {used['flows_opened']} in all"
    rows = (
        (name.replace("_", " "), most(facts["asked"], name), most(facts["granted"], name), said(now.get(name, "")))
        for name in CAPABILITIES
    )
    return _table(("May have", "Asked", "Granted", "Used"), rows)


def _destination(known: dict[str, Any]) -> str:
    failed = f", {known['failures']} failed" if known["failures"] else ""
    return f"{known['target']} ({known['connections']}{failed})"


def _peers(peers: list[dict[str, Any]]) -> str:
    if not peers:
        return "<p>No peers.</p>"
    rows = (
        (
            peer["name"],
            peer["endpoint"] or "not seen yet",
            "never" if peer["last_handshake"] is None else _age(peer["last_handshake"]),
            _size(peer["received_bytes"]),
            _size(peer["sent_bytes"]),
            "" if peer["round_trip"] is None else f"{peer['round_trip'] * 1000:.0f} ms",
            "" if peer["loss"] is None else f"{peer['loss'] * 100:.1f} %",
        )
        for peer in peers
    )
    return _table(("Peer", "Endpoint", "Last handshake", "Received", "Sent", "Round trip", "Lost"), rows)


def _client(number: int, index: int, config: ClientConfig) -> str:
    heading = f"client-{number}-{index}"
    title = f"Client configuration: {config.name}"
    return "\n".join(
        [
            f'<article aria-labelledby="{heading}">',
            f'<h3 id="{heading}">{escape(title)}</h3>',
            f"<p>For the peer <code>{escape(config.peer)}</code>. It holds a private key.</p>" if config.peer else "",
            '<div class="client">',
            f"<pre>{escape(config.content.strip())}</pre>",
            f'<figure class="qr">{qr_svg(config.content, title) or TOO_LONG}</figure>',
            "</div></article>",
        ]
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    header = "".join(f'<th scope="col" role="columnheader">{escape(cell)}</th>' for cell in head)
    body = "".join(
        '<tr role="row">' + "".join(map(_cell, head, row)) + "</tr>"
        for row in rows
    )
    # The roles stay valid where the style shows rows as lists.
    return (
        f'<table role="table"><thead role="rowgroup"><tr role="row">{header}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table>'
    )


def _cell(label: str, text: str) -> str:
    kind = ' class="long"' if any(len(word) > LONG for word in text.split()) else ""
    return f'<td role="cell" data-label="{escape(label)}"{kind}>{escape(text)}</td>'


def _age(seconds: float) -> str:
    return f"{_span(seconds)} ago"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"

"""The HTML of the page: a section for each server and each upstream."""

import time
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mitmproxy_watm import words
from mitmproxy_watm._native import ClientConfig
from mitmproxy_watm.about import About
from mitmproxy_watm.history import History, Served
from mitmproxy_watm.mode.instance import WatmInstance
from mitmproxy_watm.mode.network import NAMES
from mitmproxy_watm.mode.page import graph
from mitmproxy_watm.mode.page.html import alert, icon, items, short, table, tile
from mitmproxy_watm.mode.qr import TOO_LONG, qr_svg
from mitmproxy_watm.mode.status import describe, instances
from mitmproxy_watm.upstream.status import describe as describe_upstream
from mitmproxy_watm.upstream.status import upstreams
from mitmproxy_watm.upstream.upstream import Upstream

SHOWN = 200
"""The most peers on the page: those with the latest handshakes."""

SESSION = 180
"""The seconds for which a handshake lasts in WireGuard (paper, section 6.1)."""


def render(token: str) -> str:
    """Returns the whole page, with the token for its forms."""
    template = asset("page.html").replace("{{ token }}", escape(token))
    return template.replace("{{ servers }}", render_servers())


def render_servers() -> str:
    """Returns the part of the page that changes."""
    sections = [_server(number, instance) for number, instance in enumerate(instances())]
    sections += [_upstream(number, upstream) for number, upstream in enumerate(upstreams(), start=len(sections))]
    return "\n".join(sections) or _EMPTY


def asset(name: str) -> str:
    """Returns a file that the page refers to."""
    return (resources.files(__package__) / "assets" / name).read_text()


_EMPTY = (
    '<section class="card empty"><h2>No transport module is loaded</h2>'
    "<p>Run a server with the command <code>watm.load wireguard</code> in the console or in mitmweb’s command bar. "
    "To connect to servers through a module, use <code>watm.upstream.load</code>.</p></section>"
)


def _server(number: int, instance: WatmInstance) -> str:
    facts = describe(instance)
    data = instance.mode.parsed
    configs = instance.client_configs() if instance.is_running else []
    where = " and ".join(f"{host} port {port}" for host, port in facts["listen_addrs"])
    networks = {"udp": "UDP", "tcp": "TCP", "both": "TCP and UDP"}[instance.mode.transport_protocol]
    head = _head(number, data.title, f"{where}, {networks}" if where else "", facts)
    if not instance.is_running:
        remedy = f"Correct the mode and load it again, or remove it with the command watm.unload {facts['spec']}."
        return _section(number, facts["spec"], head, alert(facts["error"] or "It does not run yet.", remedy))
    clients = [_client(facts["spec"], index, config, data.about) for index, config in enumerate(configs)]
    names = {config.peer: Path(config.name).stem for config in configs if config.peer}
    seen = facts["used"]["flows_opened"] > 0 or any(peer["last_handshake"] is not None for peer in facts["peers"])
    first = "".join(clients) if not seen else ""
    later = ""
    if seen and clients:
        more = "".join(clients)
        title = "Connect another device" if len(clients) > 1 else "Client configuration"
        later = f'<details class="card fold" data-key="clients"><summary>{title}</summary>{more}</details>'
    # Before the first connection there is nothing to see.
    live = "" if first else _live(facts, instance.history, names)
    module = _module(number, facts["spec"], facts, instance.history)
    tools = _tools(_network(number, facts), _capture(facts, instance))
    return _section(number, facts["spec"], head, _messages(facts), first, live, later, tools, module)


def _upstream(number: int, upstream: Upstream) -> str:
    facts = describe_upstream(upstream)
    name = facts["upstream"]
    # Its options may name files, and commands take its name.
    head = _head(number, f"Upstream {name}", f"mitmproxy connects through {upstream.spec.module}", facts)
    if not facts["running"]:
        remedy = f"Correct the option watm_upstream, or remove it with the command watm.upstream.unload {name}."
        return _section(number, name, head, alert(facts["error"] or "It does not run yet.", remedy))
    live, module = _live(facts, upstream.history, {}), _module(number, name, facts, upstream.history)
    return _section(number, name, head, _messages(facts), live, module)


def _section(number: int, spec: str, *parts: str) -> str:
    return (
        f'<section class="server" aria-labelledby="server-{number}" data-key="{escape(spec)}" data-spec="{escape(spec)}">'
        + "\n".join(filter(None, parts))
        + "</section>"
    )


def _head(number: int, title: str, where: str, facts: dict[str, Any]) -> str:
    said = words.state(facts["phase"], facts["reason"]) if facts["running"] else "not running"
    good = facts["running"] and facts["phase"] == "running"
    return (
        f'<header class="head"><div><h2 id="server-{number}">{escape(title)}</h2>'
        f"<p>{escape(where)}</p><p><code>{escape(facts['spec'])}</code></p></div>"
        f'<p class="pill {"good" if good else "bad"}"><span class="hidden">State: </span>{escape(said[0].upper() + said[1:])}</p></header>'
    )


def _messages(facts: dict[str, Any]) -> str:
    """Returns warnings, each with its remedy."""
    texts = [*map(_sentence, facts["warnings"]), *(f"Writes {capture}." for capture in facts["captures"]), *_updates(facts)]
    if restarts := facts["counters"].get("host.restarts"):
        texts.append(f"The module failed and was started again {words.counted(restarts, 'time')}; the log has the reason.")
    return f'<div aria-live="polite" data-key="messages">{"".join(alert(text, kind="warn") for text in texts)}</div>'


def _sentence(text: str) -> str:
    """Returns a part of a record as a sentence of its own."""
    return f"{text[0].upper()}{text[1:].removesuffix('.')}."


def _live(facts: dict[str, Any], history: History, names: dict[str, str]) -> str:
    """Returns peers, figures and graphs."""
    peers, used = facts["peers"], facts["used"]
    connected = sum(_is_connected(peer) for peer in peers)
    cpu, _, unit = words.cores(used["cpu_permille"]).partition(" of ")
    counters = facts["counters"]
    # A WATER module has its connection itself, so that nobody counts.
    counted = history.current is None or not history.current.kind.startswith("WATER")
    tiles = [
        tile("Peers connected", f"{connected} of {len(peers)}") if peers else "",
        tile("Open flows", f"{facts['flows']:,}", f"{used['flows_opened']:,} in all"),
        tile("Received", words.size(counters.get("host.bytes_received", 0)), "since its start") if counted else "",
        tile("Sent", words.size(counters.get("host.bytes_sent", 0)), "since its start") if counted else "",
        tile("CPU", cpu, f"of {unit}" if unit else ""),
        tile("Memory", words.size(used["memory_bytes"]), f"{words.size(used['memory_peak_bytes'])} at most"),
    ]
    graphs = (graph.throughput(history) if counted else "") + graph.flows(history)
    return (
        (_peers(peers, names) if peers else "")
        + f'<dl class="tiles card" data-key="tiles">{"".join(tiles)}</dl>'
        + f'<div class="graphs" data-key="graphs">{graphs}</div>'
    )


def _updates(facts: dict[str, Any]) -> list[str]:
    """Returns what updates wait for, and their failures."""
    updates = facts["updates"]
    if updates is None:
        return []
    texts = list(updates["warnings"])
    if updates["waiting"]:
        command = f"watm.approve {facts.get('upstream', facts['spec'])} {updates['waiting']}"
        more = words.listed(updates["more"])
        texts.append(f"Release {updates['waiting']} waits, because it asks for more: {more}. {command} approves it.")
    return texts + ([updates["error"]] if updates["error"] else [])


def _is_connected(peer: dict[str, Any]) -> bool:
    return peer["last_handshake"] is not None and peer["last_handshake"] <= SESSION


def _peers(peers: Sequence[dict[str, Any]], names: dict[str, str]) -> str:
    def recent(peer: dict[str, Any]) -> float:
        return float("inf") if peer["last_handshake"] is None else float(peer["last_handshake"])

    shown = sorted(peers, key=recent)[:SHOWN]
    rest = len(peers) - len(shown)
    more = f'<p class="note">{words.counted(rest, "further peer")} with older handshakes; watm.status lists all.</p>' if rest else ""
    rows = [_peer(peer, names.get(peer["name"])) for peer in shown]
    head = ["Peer", "Address", "Last handshake", "Received", "Sent", "Round trip", "Lost"]
    # Without a value for any peer, a column says nothing.
    kept = [column for column in range(len(head)) if column < 5 or any(row[column] for row in rows)]
    content = table("Peers", [head[column] for column in kept], [[row[column] for column in kept] for row in rows])
    return f'<div class="card peers" data-key="peers"><h3>Peers</h3>{content}{more}</div>'


def _peer(peer: dict[str, Any], name: str | None) -> list[str]:
    connected = _is_connected(peer)
    dot = f'<span class="dot {"good" if connected else "off"}"></span>'
    title = f"<b>{escape(name)}</b> {short(peer['name'])}" if name else short(peer["name"], 20)
    return [
        f'<span class="peer">{dot}<span>{title}<span class="hidden">, {"" if connected else "not "}connected</span></span></span>',
        escape(peer["endpoint"] or "–"),
        words.handshake(peer["last_handshake"]),
        words.size(peer["received_bytes"]),
        words.size(peer["sent_bytes"]),
        "" if peer["round_trip"] is None else words.milliseconds(peer["round_trip"]),
        "" if peer["loss"] is None else words.percent(peer["loss"]),
    ]


def _client(spec: str, index: int, config: ClientConfig, about: About | None) -> str:
    title = f"Client configuration {config.name}"
    code = qr_svg(config.content, f"QR code of the {title[0].lower()}{title[1:]}")
    address = f"/watm/client?spec={quote(spec, safe='')}&index={index}"
    told = None if about is None else about.client
    steps = [
        escape(told or "Open the app of your client."),
        "Scan this code, or import the file." if code else "Import the file.",
        "Switch it on, then open <b>mitm.it</b> to install mitmproxy’s certificate.",
    ]
    figure = f'<figure class="qr">{code}</figure>' if code else ""
    missing = "" if code else f'<p class="note">{TOO_LONG}</p>'
    return (
        f'<article class="card client" data-key="client-{index}" aria-label="{escape(title)}">{figure}<div>'
        f"<h3>{'Scan this' if code else 'Connect'} to connect a device</h3>"
        f"<ol>{''.join(f'<li>{step}</li>' for step in steps)}</ol>{missing}"
        f'<div class="buttons"><button type="button" class="main" data-copy>{icon("copy")}Copy</button>'
        f'<a class="button" href="{escape(address)}" download="{escape(config.name)}">{icon("down")}Download'
        f'<span class="hidden"> {escape(config.name)}</span></a></div>'
        f'<p class="note">The configuration holds a private key. Keep it secret.</p>'
        f'<details data-key="text"><summary>Show the configuration</summary>'
        f'<pre tabindex="0" aria-label="{escape(title)}">{escape(config.content.strip())}</pre>'
        f'</details><p role="status" class="said" data-own></p></div></article>'
    )


def _tools(*cards: str) -> str:
    """Returns cards beside each other."""
    shown = "".join(cards)
    return f'<div class="columns" data-key="tools">{shown}</div>' if shown else ""


def _network(number: int, facts: dict[str, Any]) -> str:
    """Returns the choice of a bad network, for modules that have one."""
    network, counters = facts["network"], facts["counters"]
    if network is None:
        return ""
    buttons = "".join(
        f'<button name="words" value="{name}" aria-pressed="{"true" if name == network else "false"}">{title}</button>'
        for name, title in NAMES.items()
    )
    lost = [f"{words.counted(counters[name], 'packet')} {what}" for name, what in _LOST.items() if counters.get(name)]
    effect = f" So far: {', '.join(lost)}." if lost else ""
    label = f"words-{number}"
    return (
        f'<form class="card network" data-network="{escape(facts["spec"])}" data-key="network"><h3>Network</h3>'
        f'<p class="about">Clients reach this server through: <b>{escape(NAMES.get(network, network))}</b>.{effect}</p>'
        f'<div class="buttons" role="group" aria-label="Networks by name">{buttons}</div>'
        f'<label for="{label}">Or in words</label><div class="row"><input type="text" id="{label}" name="own" data-own '
        f'placeholder="3g loss=2%" autocomplete="off" autocapitalize="off" spellcheck="false"><button class="own">Apply</button></div>'
        f'<p role="status" class="said" data-own></p></form>'
    )


_LOST = {"network.lost": "lost", "network.dropped": "dropped", "network.corrupted": "corrupted", "network.duplicated": "duplicated"}
"""The counters of a bad network, and what happened to their packets."""


def _capture(facts: dict[str, Any], instance: WatmInstance) -> str:
    """Returns the buttons of a capture, for modules that have any packets to capture."""
    granted, capture = facts["granted"], instance.page_capture
    imports = [] if instance.module is None else instance.module.imports
    if not (any("/capture@" in name for name in imports) if granted is None else granted["capture"]):
        return ""
    spec, written = escape(facts["spec"]), capture.size
    address = f"/watm/capture?spec={quote(facts['spec'], safe='')}"
    action, text = ("stop", "Stop capture") if capture.writing else ("start", "Start capture")
    link = ""
    if written is not None:
        link = (
            f'<a class="button" href="{escape(address)}" download="capture.pcapng">{icon("down")}Download '
            f'<span class="hidden">capture </span>{words.size(written)}</a>'
        )
    again = "" if capture.writing or written is None else " A new capture replaces the last one."
    return (
        f'<form class="card capture" data-capture="{spec}" data-key="capture"><h3>Capture</h3>'
        f'<p class="about">Wireshark shows the packets inside the tunnels, and decrypts TLS that mitmproxy intercepts. '
        f"The file holds everything unencrypted.{again}</p>"
        f'<div class="buttons" data-key="{action}"><button name="action" value="{action}"{"" if capture.writing else " class=main"}>{text}</button>{link}</div>'
        f'<p role="status" class="said" data-own></p></form>'
    )


def _module(number: int, spec: str, facts: dict[str, Any], history: History) -> str:
    """Returns what the module may do, and what served before it."""
    return f'<div class="columns" data-key="module">{_permissions(facts)}{_generations(number, spec, facts, history)}</div>'


def _permissions(facts: dict[str, Any]) -> str:
    granted = facts["granted"]
    if granted is None:
        may = f"<p class='about'>The module {words.UNSEALED}.</p>"
        cannot = items("no", words.FIXED)
    else:
        may = f"<h4>It may</h4>{items('yes', words.may(granted))}"
        cannot = items("no", words.cannot(granted))
    refused = words.refused(facts["asked"], granted)
    denied = f"<h4>Your grant refuses it to</h4>{items('no', refused)}" if refused else ""
    used = facts["used"]["destinations"][:10]
    reached = f"<h4>It asked to connect to</h4><ul class='plain'>{''.join(f'<li>{escape(words.destination(known))}</li>' for known in used)}</ul>" if used else ""
    return (
        f'<div class="card"><h3>Permissions</h3>{may}<h4>It cannot</h4>{cannot}{denied}{reached}</div>'
    )


def _generations(number: int, spec: str, facts: dict[str, Any], history: History) -> str:
    seal = facts["seal"]
    name = history.current.name if history.current is not None else spec
    said = "It has no seal."
    if seal is not None:
        version = f", version {seal['version']}" if seal["version"] else ""
        said = f"Sealed as {seal['name']}{version}."
    updates = facts["updates"]
    if updates is not None:
        checked = "not checked yet" if updates["checked"] is None else f"checked {words.age(time.time() - updates['checked'])}"
        said += f" Follows {updates['source']} every {words.span(updates['every'])}, {checked}."
    failure = alert(facts["swap_error"]) if facts["swap_error"] else ""
    failed = f'<div aria-live="assertive" data-key="failed">{failure}</div>'
    entries = "".join(_entry(known, facts) for known in reversed(history.served.values()))
    return (
        f'<div class="card" data-key="generations"><h3>Module</h3>'
        f"<p class='about'><b>{escape(Path(name).name)}</b> is in service. {escape(said)}</p>"
        f"{failed}{_swap(number, spec, history)}"
        f'<h4>Generations</h4><ol class="timeline">{entries}</ol></div>'
    )


def _swap(number: int, spec: str, history: History) -> str:
    back = ""
    if history.previous is not None:
        former = escape(Path(history.previous.name).name)
        back = (
            f'<form data-rollback="{escape(spec)}" data-key="rollback"><button>{icon("back")}Go back to {former} '
            f"{short(history.previous.sha256, 8)}</button></form>"
        )
    return (
        f'<form class="swap" data-swap="{escape(spec)}" data-own data-key="swap">'
        f'<label for="file-{number}">Replace it with a file from this device</label>'
        f'<div class="row"><input id="file-{number}" type="file" name="file" accept=".wasm,application/wasm">'
        f'<button class="main">Swap</button></div>'
        f'<details><summary>Or name a module on mitmproxy’s machine</summary>'
        f'<label for="name-{number}">A packaged name, or the path of a .wasm file</label>'
        f'<div class="row"><input id="name-{number}" type="text" name="module" placeholder="wireguard" autocomplete="off" '
        f'spellcheck="false"><button>Swap</button></div></details>'
        f'<p role="status" class="said"></p></form>{back}'
    )


def _entry(known: Served, facts: dict[str, Any]) -> str:
    today = time.time() - known.began < 86400
    began = time.strftime("%H:%M:%S" if today else "%d %b", time.localtime(known.began))
    if known.replaced is None and not known.ended:
        kind, said = "now", f"In service for {words.span(time.time() - known.began)}."
    elif not known.ended:
        kind, said = "draining", f"Finishes {words.counted(known.flows, 'flow')}." if known.flows else "Stops soon."
    else:
        kind, said = "over", f"Served for {words.span((known.replaced or known.began) - known.began)}."
    version = f" {escape(known.release)}" if known.release else ""
    return (
        f'<li class="{kind}"><span class="when">{began}</span><div><b>{escape(Path(known.module).name)}{version}</b> '
        f"{short(known.sha256, 8)}<br>{said}</div></li>"
    )

"""The status in lines for people, as the command `watm.status` shows it."""

from collections.abc import Iterable, Mapping
from typing import Any

from mitmproxy_watm import words


def report(servers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the lines for these servers and upstreams, by the fields of `describe`."""
    lines: list[str] = []
    for facts in servers:
        lines += _server(facts)
    return lines or ["No transport module is loaded; load one with watm.load wireguard"]


def _server(facts: Mapping[str, Any]) -> list[str]:
    title = f"upstream {facts['upstream']}, by {facts['spec']}" if "upstream" in facts else f"server {facts['spec']}"
    if not facts["running"]:
        return [title, f"  not running: {facts['error'] or 'it starts'}"]
    where = " and ".join(f"{host} port {port}" for host, port in facts.get("listen_addrs", ()))
    state = words.state(facts["phase"], facts["reason"]) + (f" on {where}" if where else "")
    lines = [
        title,
        f"  {state}, uses {'; '.join(words.usage(facts['used']))}",
        f"  the module {'; '.join(words.permissions(facts['granted']))}",
        *(f"  generation {each['number']}, {each['module']}: {words.generation(each)}" for each in facts["generations"]),
        *(f"  {text}" for text in filter(None, [facts["swap_error"]])),
        *(f"  warning: {text}" for text in facts["warnings"]),
        *(f"  WRITES {capture}" for capture in facts["captures"]),
        *(f"  clients come through a bad network: {network}" for network in [facts.get("network")] if network not in (None, "off")),
    ]
    lines += [f"  asked to connect to {words.destination(known)}" for known in facts["used"]["destinations"]]
    return lines + [f"  {_peer(peer)}" for peer in facts["peers"]]


def _peer(peer: Mapping[str, Any]) -> str:
    said = [f"handshake {words.handshake(peer['last_handshake'])}" if peer["last_handshake"] is not None else "not connected yet"]
    said += [peer["endpoint"]] if peer["endpoint"] else []
    said += [f"received {words.size(peer['received_bytes'])}", f"sent {words.size(peer['sent_bytes'])}"]
    said += [] if peer["round_trip"] is None else [f"round trip {words.milliseconds(peer['round_trip'])}"]
    said += [] if peer["loss"] is None else [f"lost {words.percent(peer['loss'])}"]
    return f"peer {peer['name']}: {', '.join(said)}"

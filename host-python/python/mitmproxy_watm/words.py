"""Words for people: units, and a module's permissions as sentences.

The page in mitmweb and `watm.status` write with them. `watm status` of the command line uses the
same words in `runtime/cli/src/words.rs`, and both are tested against `tests/words.json`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FIXED = ("read or write files", "start other programs")
"""Actions that no module has an import for."""


def size(count: float) -> str:
    """Returns a number of bytes in binary units: "1.4 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if round(count) < 1024:
            return _digits(count, whole=unit == "B") + f" {unit}"
        count /= 1024
    return f"{_digits(count)} TiB"


def rate(per_second: float) -> str:
    """Returns bytes per second: "1.4 MiB/s"."""
    return f"{size(per_second)}/s"


def span(seconds: float) -> str:
    """Returns a duration with at most two units: "2 h 10 min"."""
    minutes = int(seconds) // 60
    if minutes < 1:
        return f"{int(seconds)} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")
    hours = minutes // 60
    return counted(hours // 24, "day") + (f" {hours % 24} h" if hours % 24 else "")


def age(seconds: float) -> str:
    """Returns the time since an event: "just now", "12 s ago"."""
    return "just now" if seconds < 1 else f"{span(seconds)} ago"


def milliseconds(seconds: float) -> str:
    """Returns a round-trip time: "4.2 ms"."""
    return f"{_digits(seconds * 1000)} ms"


def percent(share: float) -> str:
    """Returns a share between 0 and 1: "1.2 %"."""
    return f"{_digits(share * 100)} %"


def cores(permille: int) -> str:
    """Returns an amount of CPU time: "4.3 % of a core", "2 cores"."""
    if permille < 1000:
        return f"{_digits(permille / 10)} % of a core"
    return "one core" if permille == 1000 else f"{_digits(permille / 1000)} cores"


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun: "1 flow", "1,048,576 flows"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def listed(parts: Sequence[str], word: str = "and") -> str:
    """Joins parts as a sentence does: "a, b and c"."""
    return f" {word} ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def handshake(seconds: float | None) -> str:
    """Returns the time of a peer's last handshake."""
    return "not connected yet" if seconds is None else age(seconds)


def may(granted: Mapping[str, Any]) -> list[str]:
    """Returns what a module may do, by the fields of `Capabilities`: "send UDP to any address"."""
    said = _sockets(granted["sockets"]) + _destinations(granted["connect"])
    said += [words for name, words in _POWERS if granted[name]]
    return [
        *said,
        f"use up to {size(granted['memory_bytes'])} of memory and {cores(granted['cpu_permille'])}",
        f"have {counted(granted['flows'], 'flow')} and {counted(granted['instances'], 'instance')} at once",
    ]


def cannot(granted: Mapping[str, Any]) -> list[str]:
    """Returns what a module cannot do: "read or write files"."""
    networks = {pattern.partition("://")[0] for pattern in granted["connect"]}
    said = [] if granted["sockets"] else ["accept traffic"]
    said += [] if "tcp" in networks else ["open connections"]
    said += [] if "udp" in networks else ["send UDP to addresses that it has not heard from"]
    return said + [words for name, words in _POWERS if not granted[name]] + list(FIXED)


def permissions(granted: Mapping[str, Any] | None) -> list[str]:
    """Returns a sentence for each permission; the first also says if there is no limit."""
    if granted is None:
        return [UNSEALED, *(f"cannot {words}" for words in FIXED)]
    return [*(f"may {words}" for words in may(granted)), *(f"cannot {words}" for words in cannot(granted))]


UNSEALED = "has no seal, and therefore no limits besides those of this program"


def refused(asked: Mapping[str, Any] | None, granted: Mapping[str, Any] | None) -> list[str]:
    """Returns what a module's seal asks for, and the user's grant leaves out."""
    if asked is None or granted is None:
        return []
    allowed = may(granted)
    return [words for words in may(asked) if words not in allowed]


def usage(used: Mapping[str, Any]) -> list[str]:
    """Returns what a module uses now."""
    said = [
        f"{size(used['memory_bytes'])} of memory, {size(used['memory_peak_bytes'])} at most",
        cores(used["cpu_permille"]),
        f"{counted(used['flows'], 'open flow')}, {used['flows_opened']:,} in all",
    ]
    return said + (["the host's ciphers"] if used["host_crypto"] else []) + (["the host's keys"] if used["host_keys"] else [])


def destination(known: Mapping[str, Any]) -> str:
    """Returns a destination that a module asked for."""
    failed = f", {known['failures']:,} failed" if known["failures"] else ""
    return f"{known['target']}: {counted(known['connections'], 'connection')}{failed}"


def state(phase: str, reason: str | None) -> str:
    """Returns the state of a module."""
    return _STATES[phase] + (f": {reason}" if reason else "")


def generation(known: Mapping[str, Any]) -> str:
    """Returns what a generation does."""
    if known["draining"] is None:
        return f"in service for {span(known['age'])}"
    return f"finishes {counted(known['flows'], 'flow')}, for {span(known['draining'])}" if known["flows"] else "stops soon"


_STATES = {"running": "running", "restarting": "starting again", "failed": "failed", "closed": "stopped"}

_POWERS = (
    ("host_crypto", "let the host run its ciphers"),
    ("host_keys", "let the host sign with keys that stay there"),
    ("bind_transparent", "connect from its clients' addresses"),
    ("capture", "copy packets and keys to a file that you name"),
)
"""Permissions that are on or off, and their words."""


def _sockets(sockets: Iterable[str]) -> list[str]:
    networks: dict[str, list[str]] = {}
    for socket in sockets:
        network, _, label = socket.partition(" ")
        networks.setdefault(label, []).append(network.upper())
    return [
        f"accept {listed(sorted(names))}" + ("" if label == "listen" else f" on the socket {label}")
        for label, names in networks.items()
    ]


def _destinations(patterns: Iterable[str]) -> list[str]:
    places: dict[str, list[str]] = {"tcp": [], "udp": []}
    for pattern in patterns:
        network, _, place = pattern.partition("://")
        places[network].append(_place(place))
    said = [f"connect by TCP to {listed(places['tcp'], 'or')}"] if places["tcp"] else []
    return said + ([f"send UDP to {listed(places['udp'], 'or')}"] if places["udp"] else [])


def _place(pattern: str) -> str:
    host, _, port = pattern.rpartition(":")
    host = "any address" if host == "*" else f"any name below {host[2:]}" if host.startswith("*.") else host
    return host if port == "*" else f"{host} port {port}" if "-" not in port else f"{host} ports {port}"


def _digits(number: float, *, whole: bool = False) -> str:
    """Returns a number with one decimal below ten, and none if that is 0."""
    if whole or round(number, 1) >= 10:
        return f"{number:.0f}"
    return f"{number:.1f}".removesuffix(".0")

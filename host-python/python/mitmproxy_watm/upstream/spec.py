"""Parsers of upstreams and routes: `[NAME=]MODULE[?option=value&...]` and `PATTERN=NAME`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mitmproxy_watm._native import Pattern
from mitmproxy_watm._options import ModuleOptions
from mitmproxy_watm.about import TUNNEL, About
from mitmproxy_watm.applications import names
from mitmproxy_watm.mode.spec import literal, take_apart, take_host_keys, take_path, take_rotation, take_updates, take_watch
from mitmproxy_watm.modules import about_of

DIRECT = "direct"
"""The name of the route that bypasses all upstreams."""

_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]*)=(?P<data>.*)", re.DOTALL)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

_SECRET = re.compile(r"(?<=[?&]password=)[^&]*|(?<=://)[^/&@]*(?=@)")

APPLICATION = "app:"
"""The prefix of a route for an application."""


@dataclass(frozen=True)
class Spec:
    """A requested upstream."""

    text: str
    name: str
    is_default: bool
    """True if it is the default, which an upstream without a name is."""
    module: str
    config: Path | None = None
    """A file in the module's own format."""
    to: tuple[str, int] | None = None
    """The module's destination, in place of each connection's own."""
    through: str | None = None
    """The upstream by which the module reaches the network."""
    watch: bool = False
    """True if it is swapped when its file changes."""
    options: ModuleOptions = ModuleOptions()
    """The options of its dialer, without those that the configuration decides."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Further fields of the configuration."""
    about: About | None = None
    """The module's description of itself."""

    @property
    def shown(self) -> str:
        """The text for people, without passwords."""
        return _SECRET.sub("***", self.text)

    @property
    def takes_tunnels(self) -> bool:
        """True if the module's configuration can be a file of wg-quick."""
        return self.about is not None and TUNNEL in self.about.formats


@dataclass(frozen=True)
class Route:
    """A rule that assigns connections to an upstream."""

    text: str
    upstream: str
    """The name of the upstream, or `DIRECT`."""
    pattern: Pattern | None
    application: str | None

    def means(self, transport: str, hosts: Sequence[str], port: int, application: str | None) -> bool:
        """Returns True if it matches this connection, whose host may have several names."""
        if self.pattern is None:
            return application is not None and names(self.application or "", application)
        return any(self.pattern.admits(transport, host, port) for host in hosts)


def parse(text: str) -> Spec:
    """Parses an upstream, and undoes percent-encoding. Raises ValueError."""
    found = _NAMED.fullmatch(text)
    module, named = take_apart(found["data"] if found else text)
    name = found["name"] if found else Path(module).stem
    if name == DIRECT or not _NAME.fullmatch(name):
        raise ValueError(f"name {name!r}: must be letters, digits, '.', '-' and '_', and not {DIRECT}")
    about = about_of(module)
    updates = take_updates(named)
    pcap_size, pcap_files = take_rotation(named)
    spec = Spec(
        text,
        name,
        found is None,
        module,
        config=take_path(named, "config"),
        to=None if (to := named.pop("to", None)) is None else _destination(to),
        through=_other(named.pop("through", None), name),
        watch=take_watch(named.pop("watch", None), module, updates),
        options=ModuleOptions(
            keys=take_host_keys(named),
            name=name,
            pcap=take_path(named, "pcap"),
            pcap_size=pcap_size,
            pcap_files=pcap_files,
            key_log=take_path(named, "key_log"),
            updates=updates,
            allow=_list(named, "allow") or (),
            udp=_udp(named.pop("udp", None)),
            dns=_list(named, "dns"),
            fixed=_switch(named, "fixed", False),
        ),
        fields={name: literal(name, value, about) for name, value in named.items()},
        about=about,
    )
    if spec.options.fixed and spec.to is not None:
        raise ValueError("options to and fixed: give one of them; both say where the module connects to")
    if spec.through is not None and isinstance(spec.options.udp, str):
        raise ValueError("options udp and through: the other upstream opens the socket; give udp=on, or no udp")
    return spec


def in_order(specs: Sequence[Spec]) -> list[Spec]:
    """Returns them so that each comes after the one that it goes through. Raises ValueError."""
    waiting, ordered = {spec.name: spec for spec in specs}, list[Spec]()
    names = [*waiting]
    while waiting:
        next_ones = [spec for spec in waiting.values() if spec.through not in waiting]
        if not next_ones:
            raise ValueError(f"option through: {', '.join(waiting)} go through each other; one must go through none of them")
        for spec in next_ones:
            if spec.through is not None and spec.through not in names:
                others = ", ".join(other for other in names if other != spec.name) or "none"
                raise ValueError(f"option through of {spec.name}: no upstream {spec.through}; available: {others}")
            ordered.append(waiting.pop(spec.name))
    return ordered


def parse_route(text: str) -> Route:
    """Parses a route. Raises ValueError."""
    pattern, equals, upstream = text.rpartition("=")
    if not equals or not _NAME.fullmatch(upstream):
        raise ValueError(f"{text!r}: must be PATTERN=NAME, with the name of an upstream, or {DIRECT}")
    if pattern.startswith(APPLICATION):
        application = pattern.removeprefix(APPLICATION)
        if not application:
            raise ValueError(f"{text!r}: missing application name")
        return Route(text, upstream, None, application)
    return Route(text, upstream, Pattern(pattern), None)


def _other(through: str | None, name: str) -> str | None:
    if through is not None and (through in (DIRECT, name) or not _NAME.fullmatch(through)):
        raise ValueError(f"option through: {through!r}; must be the name of another upstream")
    return through


def _destination(to: str) -> tuple[str, int]:
    host, colon, port = to.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"option to: {to!r}; must be host:port")
    return host, int(port)


def _switch(named: dict[str, str], name: str, default: bool) -> bool:
    value = named.pop(name, None)
    if value not in ("on", "off", None):
        raise ValueError(f"option {name}: {value!r} is neither on nor off")
    return default if value is None else value == "on"


def _list(named: dict[str, str], name: str) -> tuple[str, ...] | None:
    value = named.pop(name, None)
    return None if value is None else tuple(filter(None, (item.strip() for item in value.split(","))))


def _udp(value: str | None) -> str | bool | None:
    return {"on": True, "off": False}.get(value, value) if value is not None else None

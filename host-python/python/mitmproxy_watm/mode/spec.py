"""What a mode specification says: `watm:MODULE[?option=value&...][@[host:]port]`."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from mitmproxy_watm.modules import PACKAGED, STREAMS

PREFIX = "watm:"

SHIPPED = "wireguard"
"""The module that is a WireGuard server, by name."""

_LISTEN = re.compile(r"(?:[^@/?&=%]*:)?[0-9]{1,5}")


@dataclass(frozen=True)
class Upstream:
    """Where connections go that say not where they go: `[scheme://]host:port`."""

    address: tuple[str, int]
    reverse: str | None
    """The same as mitmproxy's reverse mode has it, if it has a scheme; without one, each
    connection goes on as what it begins like."""


@dataclass(frozen=True)
class Data:
    """The part between `watm:` and `@`, taken apart."""

    module: str
    """A path, or one of `PACKAGED`."""
    config: Path | None = None
    """A file in the module's own format."""
    keys: Path | None = None
    """A key file in the place of mitmproxy's `wireguard.conf`."""
    record: Path | None = None
    """A new file for the module's whole life, with all payload and keys."""
    upstream: Upstream | None = None
    """Where all connections go."""
    transport: Literal["udp", "tcp"] | None = None
    """What the module listens on; None is what it says itself."""
    watch: bool = False
    """Whether the module is swapped when its file is another one."""
    options: dict[str, Any] = field(default_factory=dict)
    """What else the configuration has to say, by name."""

    @property
    def name(self) -> str:
        """A short name for people."""
        return Path(self.module).stem

    @property
    def is_wireguard(self) -> bool:
        """Whether the module is a WireGuard server, which is told by its name."""
        return self.name.lower().startswith(SHIPPED)


def parse(data: str) -> Data:
    """Take `data` apart. Percent-encoding is undone. Raises ValueError."""
    head, _, query = data.partition("?")
    module = unquote(head)
    if module not in PACKAGED and not module.endswith(".wasm"):
        raise ValueError(f"module: {module!r} is neither one of {', '.join(PACKAGED)} nor the path of a .wasm file")
    named: dict[str, str] = {}
    for item in filter(None, query.split("&")):
        name, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"option {name!r}: write it as {name}=value")
        if name in named:
            raise ValueError(f"option {name!r}: given twice")
        named[unquote(name)] = unquote(value)
    files = ("config", "keys", "record")
    config, keys, record = (Path(path).expanduser() if (path := named.pop(name, None)) else None for name in files)
    if config and keys:
        raise ValueError("options config and keys: give one of them; a configuration has its own keys")
    upstream = _upstream(to) if (to := named.pop("to", None)) is not None else None
    transport = _transport(named.pop("transport", None), module, upstream)
    watch = _watch(named.pop("watch", None), module)
    options = {name: _literal(value) for name, value in named.items()}
    return Data(module, config, keys, record, upstream, transport, watch, options)


def complete(spec: str) -> str:
    """A specification as mitmproxy can parse it, from one that may lack `watm:`.

    mitmproxy takes what follows the last "@" for an address. Where it is none, the "@" belongs
    to a path, and is encoded.
    """
    data = spec.removeprefix(PREFIX)
    if "@" in data and not _LISTEN.fullmatch(data.rpartition("@")[2]):
        data = data.replace("@", "%40")
    return PREFIX + data


def _transport(option: str | None, module: str, upstream: Upstream | None) -> Literal["udp", "tcp"] | None:
    """As far as it is known before the module is loaded."""
    if option not in ("udp", "tcp", None):
        raise ValueError(f"option transport: {option!r} is neither udp nor tcp")
    if option is None and (upstream is not None or module in STREAMS):
        return "tcp"
    if option is None and module not in PACKAGED:
        return None
    return "tcp" if option == "tcp" else "udp"


def _watch(option: str | None, module: str) -> bool:
    if option not in ("on", "off", None):
        raise ValueError(f"option watch: {option!r} is neither on nor off")
    if module in PACKAGED:
        if option == "on":
            raise ValueError(f"option watch: {module} comes with this package, and changes with it alone")
        return False
    return option != "off"


def _upstream(to: str) -> Upstream:
    wanted = "must be host:port, or that after http://, https://, tcp:// or tls://"
    scheme, separator, rest = to.rpartition("://")
    if separator and scheme not in ("http", "https", "tcp", "tls"):
        raise ValueError(f"option to: {to!r}; {wanted}")
    host, colon, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"option to: {to!r}; {wanted}")
    return Upstream((host, int(port)), f"reverse:{to}" if separator else None)


def _literal(value: str) -> Any:
    """A number or a boolean where it reads as one; a list or an object; otherwise the text."""
    try:
        return json.loads(value)
    except ValueError:
        return value

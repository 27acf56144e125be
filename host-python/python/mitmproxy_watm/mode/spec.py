"""Parser of mode specifications: `watm:MODULE[?option=value&...][@[host:]port]`."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mitmproxy_watm._errors import plain
from mitmproxy_watm._options import ModuleOptions
from mitmproxy_watm.about import KEYS, About
from mitmproxy_watm.modules import PACKAGED, Transport, about_of, about_transport
from mitmproxy_watm.updates import UpdateSource

PREFIX = "watm:"

_LISTEN = re.compile(r"(?:[^@/?&=%]*:)?[0-9]{1,5}")


@dataclass(frozen=True)
class FixedDestination:
    """The destination of connections that name none: `[scheme://]host:port`."""

    address: tuple[str, int]
    reverse: str | None
    """The same for mitmproxy's reverse mode, if it has a scheme. Without one, each connection is
    handled by its first bytes."""


@dataclass(frozen=True)
class Data:
    """The part between `watm:` and `@`, parsed."""

    module: str
    """A path, or one of `PACKAGED`."""
    config: Path | None = None
    """A file in the module's own format."""
    keys: Path | None = None
    """A key file in place of mitmproxy's `wireguard.conf`."""
    destination: FixedDestination | None = None
    """The destination of all connections."""
    watch: bool = False
    """True if the module is swapped when its file changes."""
    namespace: str | None = None
    """The network namespace whose programs' packets it takes: a name, the number of a process, or a path."""
    options: ModuleOptions = ModuleOptions()
    """The options of its server, without the configuration."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Further fields of the configuration, by name."""
    about: About | None = None
    """The module's description of itself."""

    @property
    def title(self) -> str:
        """The name of the transport for people."""
        return Path(self.module).stem if self.about is None else self.about.title

    @property
    def takes_keys(self) -> bool:
        """True if the module's configuration takes the keys of mitmproxy's own WireGuard mode."""
        return self.about is not None and KEYS in self.about.formats


def parse(data: str) -> Data:
    """Parses `data`, and undoes percent-encoding. Raises ValueError."""
    module, named = take_apart(data)
    about = about_of(module)
    files = ("config", "keys", "record", "pcap", "key_log")
    config, keys, record, pcap, key_log = (take_path(named, name) for name in files)
    if config and keys:
        raise ValueError("options config and keys: give one of them; a configuration has its own keys")
    pcap_size, pcap_files = take_rotation(named)
    host_keys = take_host_keys(named)
    destination = _destination(to) if (to := named.pop("to", None)) is not None else None
    transport = _transport(named.pop("transport", None), about, destination)
    updates = take_updates(named)
    watch = take_watch(named.pop("watch", None), module, updates)
    device, namespace = named.pop("device", None), named.pop("netns", None)
    if device is not None and namespace is not None:
        raise ValueError("options device and netns: give one of them; a namespace gets a device of its own")
    options = ModuleOptions(
        keys=host_keys,
        record=record,
        pcap=pcap,
        pcap_size=pcap_size,
        pcap_files=pcap_files,
        key_log=key_log,
        transport=transport,
        device=device,
        updates=updates,
    )
    fields = {name: literal(name, value, about) for name, value in named.items()}
    return Data(module, config, keys, destination, watch, namespace, options, fields, about)


def take_apart(data: str) -> tuple[str, dict[str, str]]:
    """Splits the module and the options by name, and undoes percent-encoding. Raises ValueError."""
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
    return module, named


def complete(spec: str) -> str:
    """Completes a specification that may lack `watm:`, so that mitmproxy can parse it.

    mitmproxy takes the text after the last "@" for an address. If it is none, the "@" belongs to a
    path, and is encoded.
    """
    data = spec.removeprefix(PREFIX)
    if "@" in data and not _LISTEN.fullmatch(data.rpartition("@")[2]):
        data = data.replace("@", "%40")
    return PREFIX + data


_TRANSPORTS: dict[str, Transport] = {"udp": "udp", "tcp": "tcp", "both": "both"}


def _transport(option: str | None, about: About | None, destination: FixedDestination | None) -> Transport | None:
    """Returns the protocols, as far as they are known before the module is loaded."""
    if option is not None:
        if option not in _TRANSPORTS:
            raise ValueError(f"option transport: {option!r} is neither udp nor tcp nor both")
        return _TRANSPORTS[option]
    return "tcp" if destination is not None else about_transport(about)


def take_host_keys(named: dict[str, str]) -> dict[str, Path]:
    """Removes the option `host_keys`, and returns the keys that it names."""
    option = named.pop("host_keys", None)
    keys: dict[str, Path] = {}
    for item in option.split(",") if option is not None else []:
        name, _, path = item.partition("=")
        if not name or not path or name in keys:
            raise ValueError(f"option host_keys: {item!r}; must be NAME=FILE, several with a comma between them")
        keys[name] = Path(path).expanduser()
    return keys


def take_path(named: dict[str, str], name: str) -> Path | None:
    """Removes an option, and returns the file that it names."""
    path = named.pop(name, None)
    return Path(path).expanduser() if path else None


_SIZES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def take_rotation(named: dict[str, str]) -> tuple[int | None, int | None]:
    """Removes the options `pcap_size` and `pcap_files`, and returns the bytes and the number."""
    size, files = named.pop("pcap_size", None), named.pop("pcap_files", None)
    number = _whole(size[:-3]) if size is not None else None
    if size is not None and (not number or size[-3:] not in _SIZES):
        raise ValueError(f"option pcap_size: {size!r}; must be a number above 0 with KiB, MiB or GiB, such as 64MiB")
    kept = _whole(files) if files is not None else None
    if files is not None and not kept:
        raise ValueError(f"option pcap_files: {files!r}; must be a number above 0")
    return (None if size is None or number is None else number * _SIZES[size[-3:]]), kept


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def take_watch(option: str | None, module: str, updates: UpdateSource | None) -> bool:
    """Returns the effect of the option `watch`: by default every file is watched."""
    if option not in ("on", "off", None):
        raise ValueError(f"option watch: {option!r} is neither on nor off")
    if updates is not None:
        if option == "on":
            raise ValueError("options watch and update: give one of them; both swap the module")
        return False
    if module in PACKAGED:
        if option == "on":
            raise ValueError(f"option watch: {module} comes with this package, and is updated with it only")
        return False
    return option != "off"


_UPDATE_OPTIONS = ("name", "channel", "note", "ca", "credentials", "credentials_for")
"""Options of updates that are files or texts, each `update_...`."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def take_updates(named: dict[str, str]) -> UpdateSource | None:
    """Removes the options `update` and `update_...`, and returns the source that they describe."""
    own: dict[str, Any] = {name: named.pop(f"update_{name}") for name in _UPDATE_OPTIONS if f"update_{name}" in named}
    plain_http = named.pop("update_plain_http", None)
    source = named.pop("update", None)
    if source is None:
        if plain_http is not None:
            raise ValueError("option update_plain_http: needs the option update, which is missing")
        if own:
            raise ValueError(f"option update_{next(iter(own))}: needs the option update, which is missing")
        return None
    if not source:
        raise ValueError("option update: must be a path, or begin with http://, https:// or oci://")
    if (path := own.pop("credentials", None)) is not None:
        try:
            own["credentials"] = Path(path).expanduser().read_text()
        except OSError as e:
            raise ValueError(f"option update_credentials: {plain(e)}") from None
    if (hosts := own.pop("credentials_for", None)) is not None:
        own["credentials_for"] = hosts.split(",")
    if plain_http not in ("on", "off", None):
        raise ValueError(f"option update_plain_http: {plain_http!r} is neither on nor off")
    every = _every(named.pop("every", "1h"))
    return UpdateSource(source=source, every=every, plain_http=plain_http == "on", **own)


def _every(text: str) -> float:
    number, unit = text[:-1], _UNITS.get(text[-1:])
    if unit is None or not number.isascii() or not number.isdigit() or int(number) == 0:
        raise ValueError(f"option every: {text!r}; must be a number above 0 with s, m, h or d, such as 15m")
    return int(number) * unit


def _destination(to: str) -> FixedDestination:
    wanted = "must be host:port, optionally after http://, https://, tcp:// or tls://"
    scheme, separator, rest = to.rpartition("://")
    if separator and scheme not in ("http", "https", "tcp", "tls"):
        raise ValueError(f"option to: {to!r}; {wanted}")
    host, colon, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"option to: {to!r}; {wanted}")
    return FixedDestination((host, int(port)), f"reverse:{to}" if separator else None)


def literal(name: str, value: str, about: About | None) -> Any:
    """Returns the value of a field: a number, a boolean, a list or an object if the text is one in JSON, or else the
    text. A field that is a text by the module's description is one also if it looks like a number."""
    if about is not None and about.is_text(name):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value

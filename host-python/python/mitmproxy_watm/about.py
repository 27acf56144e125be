"""Modules' descriptions of themselves: what a module is for, before it is loaded."""

import functools
import json
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Self

from mitmproxy_watm._native import Module, describe

KEYS = "mitmproxy-wireguard"
"""The format of configurations that takes the keys of mitmproxy's own WireGuard mode."""

JSON = ("json", KEYS)
"""The formats of configurations that are JSON objects."""

TUNNEL = "wg"
"""The format of configurations that wg-quick(8) has."""


@dataclass(frozen=True)
class About:
    """A module's description of itself: claims, which grant nothing."""

    name: str
    title: str
    """The name as people write it."""
    transports: tuple[str, ...] = ()
    """The protocols that a server listens on: "udp", "tcp", or "packets" of a device."""
    destinations: bool = True
    """True if its connections name a destination."""
    port: int | None = None
    """The usual port of a server."""
    client: str | None = None
    """The first step of a person with a client configuration, as a sentence."""
    formats: dict[str, dict[str, str]] = field(default_factory=dict)
    """The kinds of fields by their names, in each format of its configuration."""

    @classmethod
    def of(cls, text: str) -> Self:
        """Reads a description in JSON, which the host has checked."""
        told: dict[str, Any] = json.loads(text)
        return cls(
            name=told["name"],
            title=told["title"] or told["name"],
            transports=tuple(socket["transport"] for socket in told["sockets"]),
            destinations=told["destinations"],
            port=told.get("port"),
            client=told.get("client"),
            formats={each["name"]: _fields(each) for each in told["formats"]},
        )

    def is_text(self, name: str) -> bool:
        """Returns True if a field of this name is a text in each format that has it."""
        kinds = {fields[name] for fields in self.formats.values() if name in fields}
        return kinds == {"text"}

    def has_json_field(self, name: str) -> bool:
        """Returns True if a format in JSON has a field of this name."""
        return any(name in self.formats.get(format, {}) for format in JSON)


def _fields(told: dict[str, Any]) -> dict[str, str]:
    outermost = told["tables"][0]["fields"] if told["tables"] else ()
    return {each["name"]: each["kind"] for each in outermost}


def about_loaded(module: Module) -> About | None:
    """Returns the description of a module, if it has one."""
    return None if module.about is None else About.of(module.about)


def about_packaged(name: str) -> About | None:
    """Returns the description of a module of this package."""
    return _read(Path(str(resources.files(__package__) / "modules" / f"{name}.wasm")), None)


def about_file(path: Path) -> About | None:
    """Returns the description of the module in a file. A file that cannot be read has none: loading it tells why."""
    try:
        found = path.stat()
    except OSError:
        return None
    return _read(path, (found.st_mtime_ns, found.st_size))


@functools.lru_cache(maxsize=32)
def _read(path: Path, _mark: tuple[int, int] | None) -> About | None:
    try:
        told = describe(path.read_bytes())
    except OSError:
        return None
    return None if told is None else About.of(told)

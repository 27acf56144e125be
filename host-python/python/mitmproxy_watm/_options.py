"""Options of dialing modules, in the form of the native half."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from mitmproxy_watm.limits import Limits
from mitmproxy_watm._native import Module

AnyPath = str | os.PathLike[str]

ANY_PORT = "[::]:0"
"""The default address of UDP sockets."""


class DialOptions(TypedDict):
    """The options of a module that dials."""

    config: bytes | None
    allow: list[str]
    keys: list[tuple[str, AnyPath]]
    limits: Limits
    name: str
    udp: str | None
    dns: list[str] | None
    pcap: AnyPath | None
    key_log: AnyPath | None


def dial_options(
    module: Module,
    *,
    config: str | bytes | None,
    allow: Iterable[str],
    limits: Limits,
    name: str | None,
    keys: Mapping[str, AnyPath] = {},
    udp: str | bool | None = None,
    dns: Sequence[str] | None = None,
    pcap: AnyPath | None = None,
    key_log: AnyPath | None = None,
) -> DialOptions:
    """Converts the arguments of `open_connection`, for a loaded module."""
    return {
        "config": content_of(config),
        "allow": list(allow),
        "keys": list(keys.items()),
        "limits": limits,
        "name": name or module.name,
        "udp": _socket_of(module, udp),
        "dns": None if dns is None else list(dns),
        "pcap": pcap,
        "key_log": key_log,
    }


def content_of(config: str | bytes | None) -> bytes | None:
    """Returns a configuration as bytes."""
    return config.encode() if isinstance(config, str) else config


def _socket_of(module: Module, udp: str | bool | None) -> str | None:
    """Returns the address of a component's UDP socket, if it is granted one."""
    if isinstance(udp, str):
        return udp
    if udp is None:
        granted = module.granted
        udp = "udp" in module.listens_on and (granted is None or "udp listen" in granted.sockets)
    return ANY_PORT if udp else None

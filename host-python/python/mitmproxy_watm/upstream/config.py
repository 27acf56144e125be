"""Settings of an upstream's module, and the parts of its configuration that the host applies."""

import ipaddress
import json
import re
from dataclasses import dataclass
from typing import Any

from mitmproxy_watm.applications import Applications
from mitmproxy_watm.upstream.spec import Spec

_PEER = re.compile(r"^\s*\[\s*peer\s*\]", re.IGNORECASE | re.MULTILINE)

_FIELD = re.compile(r"\s*(?P<name>[A-Za-z]+)\s*=\s*(?P<value>[^#]*)")


@dataclass(frozen=True)
class Settings:
    """Arguments of `start_dialer`."""

    config: bytes | None
    allow: tuple[str, ...]
    dns: tuple[str, ...] | None
    applications: Applications | None


def read_settings(spec: Spec) -> Settings:
    """Reads the settings from the file and the options, which take precedence. Raises ValueError
    and OSError."""
    if spec.config is None:
        content = json.dumps(spec.options).encode() if spec.options else None
        return Settings(content, spec.allow, spec.dns, None)
    content = spec.config.read_bytes()
    if spec.is_wireguard and not content.lstrip().startswith(b"{"):
        if spec.options:
            names = ", ".join(spec.options)
            raise ValueError(f"{names}: {spec.config} is not a JSON object; set it in that file instead")
        return _wireguard(spec, content.decode(errors="replace"))
    try:
        said: Any = json.loads(content)
    except ValueError:
        said = None
    if spec.options:
        if not isinstance(said, dict):
            names = ", ".join(spec.options)
            raise ValueError(f"{names}: {spec.config} is not a JSON object; set it in that file instead")
        content = json.dumps(said | spec.options).encode()
    return Settings(content, spec.allow + _server(said), spec.dns, None)


def _wireguard(spec: Spec, config: str) -> Settings:
    """Reads a file of wg-quick, whose DNS servers and rules for applications the host applies."""
    rest, applications = Applications.of_wireguard(config)
    found = [match for line in rest.splitlines() if (match := _FIELD.match(line))]
    said = [(match["name"].lower(), match["value"].strip()) for match in found]
    dns = tuple(server for name, value in said if name == "dns" for server in _addresses(value))
    # An endpoint may be a name, which the module looks up, and TCP connects to it.
    endpoints = [value for name, value in said if name == "endpoint" and value]
    # A peer may also connect by itself, if it knows the port. A WATER module gets its destination.
    if not endpoints and not isinstance(spec.udp, str) and spec.to is None and not spec.fixed:
        missing = "no [Peer] has an Endpoint" if _PEER.search(rest) else "has no [Peer] section"
        raise ValueError(
            f"{spec.config}: {missing}, so there is no server to connect to; "
            "add a [Peer] with the server's PublicKey, AllowedIPs and Endpoint = HOST:PORT"
        )
    allow = tuple(prefix + endpoint for endpoint in endpoints for prefix in ("udp://", "tcp://"))
    return Settings(rest.encode(), spec.allow + allow, spec.dns if spec.dns is not None else dns or None, applications)


def _addresses(value: str) -> list[str]:
    """Returns the addresses in a list, which may also contain search domains."""
    return [item for item in (part.strip() for part in value.split(",")) if _is_address(item)]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _server(said: Any) -> tuple[str, ...]:
    """Returns the server of a shadowsocks client, as its user configured it."""
    if not isinstance(said, dict) or not isinstance(said.get("server"), str):
        return ()
    host, port = said["server"], said.get("server_port")
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}",)

"""Options of an upstream's module, and the parts of its configuration that the host applies."""

import ipaddress
import json
import re
from dataclasses import replace
from typing import Any

from mitmproxy_watm._options import ModuleOptions
from mitmproxy_watm.applications import Applications
from mitmproxy_watm.upstream.spec import Spec

_PEER = re.compile(r"^\s*\[\s*peer\s*\]", re.IGNORECASE | re.MULTILINE)

_FIELD = re.compile(r"\s*(?P<name>[A-Za-z]+)\s*=\s*(?P<value>[^#]*)")


def read_options(spec: Spec) -> ModuleOptions:
    """Completes the options by the configuration: its file and the fields, which take precedence. Raises ValueError
    and OSError."""
    if spec.config is None:
        given = json.dumps(spec.fields).encode() if spec.fields else None
        return replace(spec.options, config=given, allow=(*spec.options.allow, *_server(spec.fields)))
    content = spec.config.read_bytes()
    if spec.takes_tunnels and not content.lstrip().startswith(b"{"):
        if spec.fields:
            names = ", ".join(spec.fields)
            raise ValueError(f"{names}: {spec.config} is not a JSON object; set it in that file instead")
        return _wireguard(spec, content.decode(errors="replace"))
    try:
        said: Any = json.loads(content)
    except ValueError:
        said = None
    if spec.fields:
        if not isinstance(said, dict):
            names = ", ".join(spec.fields)
            raise ValueError(f"{names}: {spec.config} is not a JSON object; set it in that file instead")
        said = said | spec.fields
        content = json.dumps(said).encode()
    return replace(spec.options, config=content, allow=(*spec.options.allow, *_server(said)))


def _wireguard(spec: Spec, config: str) -> ModuleOptions:
    """Reads a file of wg-quick, whose DNS servers and rules for applications the host applies."""
    options = spec.options
    rest, applications = Applications.of_wireguard(config)
    found = [match for line in rest.splitlines() if (match := _FIELD.match(line))]
    said = [(match["name"].lower(), match["value"].strip()) for match in found]
    dns = tuple(server for name, value in said if name == "dns" for server in _addresses(value))
    # An endpoint may be a name, which the module looks up, and TCP connects to it.
    endpoints = [value for name, value in said if name == "endpoint" and value]
    # A peer may also connect by itself, if it knows the port. A WATER module gets its destination.
    if not endpoints and not isinstance(options.udp, str) and spec.to is None and not options.fixed:
        missing = "no [Peer] has an Endpoint" if _PEER.search(rest) else "has no [Peer] section"
        raise ValueError(
            f"{spec.config}: {missing}, so there is no server to connect to; "
            "add a [Peer] with the server's PublicKey, AllowedIPs and Endpoint = HOST:PORT"
        )
    allow = tuple(prefix + endpoint for endpoint in endpoints for prefix in ("udp://", "tcp://"))
    return replace(
        options,
        config=rest.encode(),
        allow=(*options.allow, *allow),
        dns=options.dns if options.dns is not None else dns or None,
        applications=applications,
    )


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
    """Returns the server of a shadowsocks client, or the proxy of a SOCKS5 client, as its user configured it."""
    if not isinstance(said, dict) or not isinstance(said.get("server"), str):
        return ()
    host, port = said["server"], said.get("server_port")
    if port is None:
        return _proxy(host)
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}",)


def _proxy(url: str) -> tuple[str, ...]:
    """Returns the proxy that a URL names, with every port for UDP: a SOCKS5 proxy chooses one for each association."""
    address = url.rpartition("://")[2].rpartition("@")[2].removesuffix("/")
    host, colon, _ = address.rpartition(":")
    return (f"tcp://{address}", f"udp://{host}") if colon and host else ()

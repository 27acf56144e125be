"""Modules: by name, by path, from memory."""

import asyncio
import os
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Literal

from mitmproxy_watm._native import Module, claimed_name, load, load_file, load_packaged
from mitmproxy_watm.about import About, about_file, about_loaded, about_packaged

PACKAGED = ("plain", "proxy-protocol", "reverse", "shadowsocks", "socks5", "tls", "tun", "wireguard")
"""The modules of this package, by name."""

Transport = Literal["udp", "tcp", "both", "packets"]
"""The protocols that a module listens on; "packets" for the device that it takes packets from."""

LARGEST = 64 << 20
"""The bytes of the largest module that is loaded."""


@dataclass(frozen=True)
class NamedBytes:
    """The content of a `.wasm` file that is not on this machine."""

    name: str
    """The name of the file, for records and errors."""
    content: bytes = field(repr=False)


AnyModule = str | os.PathLike[str] | bytes | NamedBytes | Module
"""A module as functions accept it: one of `PACKAGED`, the path of a `.wasm` file, the bytes of one,
or the result of `load_module`."""


async def load_module(module: AnyModule, *, unsealed: bool = False) -> Module:
    """Verify and compile a module, for use in many dials or servers.

    One of `PACKAGED` is sealed under the root of this package. Any other must be sealed under the
    root that the user trusts (`watm trust`). With `unsealed`, which is for development, the seal
    may be missing, and a warning is logged.

    Functions that take a module do this themselves, each time. Raises `ModuleError` for a module
    that is not trusted or cannot run, and `OSError` for a file that cannot be read.
    """
    if isinstance(module, Module):
        return module
    return await asyncio.get_running_loop().run_in_executor(None, lambda: read_module(module, unsealed=unsealed))


def read_module(module: AnyModule, *, unsealed: bool = False) -> Module:
    """Does the same as `load_module`, blocking."""
    if isinstance(module, Module):
        return module
    if isinstance(module, bytes):
        return load("module", module, unsealed=unsealed)
    if isinstance(module, NamedBytes):
        return load(module.name, module.content, unsealed=unsealed)
    if module in PACKAGED:
        folder = resources.files(__package__) / "modules"
        return load_packaged(str(module), (folder / f"{module}.wasm").read_bytes(), (folder / "root.watm").read_bytes())
    return load_file(Path(module).expanduser(), unsealed=unsealed)


def read_name(module: AnyModule) -> str | None:
    """Returns the name that its seal claims, if it has one. Blocking, without verification."""
    if isinstance(module, Module):
        return None if module.seal is None else module.seal.name
    if isinstance(module, bytes):
        return claimed_name(module)
    if isinstance(module, NamedBytes):
        return claimed_name(module.content)
    if module in PACKAGED:
        return claimed_name((resources.files(__package__) / "modules" / f"{module}.wasm").read_bytes())
    return claimed_name(Path(module).expanduser().read_bytes())


def usual_transport(module: Module) -> Transport:
    """Returns the default protocols of a module: those of its description, or the first that it can listen on."""
    about = about_loaded(module)
    if about is None and module.takes_packets and not module.listens_on:
        return "packets"
    return about_transport(about) or ("tcp" if module.listens_on[:1] == ["tcp"] else "udp")


def about_transport(about: About | None) -> Transport | None:
    """Returns the protocols of a description."""
    transports = set() if about is None else {"tcp", "udp", "packets"}.intersection(about.transports)
    if "packets" in transports:
        return "packets"
    if len(transports) == 2:
        return "both"
    return "tcp" if "tcp" in transports else "udp" if transports else None


def names_no_destination(module: Module) -> bool:
    """Returns True if the connections that it accepts name no destination. A file may be replaced by a module whose
    connections do, while it runs."""
    about = about_loaded(module)
    is_fixed = module.kind.startswith("WATER") or module.name in PACKAGED
    return is_fixed and (about is None or not about.destinations)


def about_of(module: str) -> About | None:
    """Returns the description of a module, one of `PACKAGED` or the path of a `.wasm` file."""
    return about_packaged(module) if module in PACKAGED else about_file(Path(module).expanduser())

"""The machine and the tools that the figures depend on."""

import base64
import importlib.metadata
import os
import pathlib
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from watm_test_support import machine
from watm_test_support.repository import MODULES, PROGRAMS, ROOT

from . import networks

CLIENT = ROOT / "build" / "wgclient"
# The transport crate in a program of its own, and the module with the host that runs it in Rust.
CRATE = ROOT / "watm" / "target" / "release" / "watm-native"
HOST = PROGRAMS / "examples" / "serve"
MODULE = MODULES / "wireguard.wasm"

# Files that `make bench` makes before it begins.
_BUILT = [CLIENT, CRATE, HOST, MODULE]
_PACKAGES = ["mitmproxy", "mitmproxy_rs", "mitmproxy_watm"]


class Missing(Exception):
    """A requirement of the benchmark is missing."""


@dataclass(frozen=True)
class KeyPair:
    """WireGuard keys, in base64."""

    private: str
    public: str


def key_pair() -> KeyPair:
    """Generates keys."""
    key = X25519PrivateKey.generate()
    private, public = key.private_bytes_raw(), key.public_key().public_bytes_raw()
    return KeyPair(base64.b64encode(private).decode(), base64.b64encode(public).decode())


def check() -> None:
    """Raises `Missing` with the missing requirement and the way to get it."""
    need(_BUILT)
    for package in _PACKAGES:
        if _version(package) is None:
            raise Missing(f"the Python package {package} is not installed")


def need_device() -> None:
    """Raises `Missing` if the system permits no network with a device."""
    if refusal := networks.refusal():
        raise Missing(f"no network with a device: {refusal}; run as root, or choose other --studies")


def need(files: list[pathlib.Path]) -> None:
    """Raises `Missing` if one of the files is missing, or if there is only one CPU."""
    for file in files:
        if not file.exists():
            raise Missing(f"{file} is missing: the command of the Makefile builds it")
    if len(cpus()) < 2:
        raise Missing("the server and the client need a CPU each, and there is one")


def choice(text: str, known: list[str]) -> list[str]:
    """Returns the names in a comma-separated list. Raises `Missing` for an unknown one."""
    names = text.split(",")
    for name in names:
        if name not in known:
            raise Missing(f"{name!r} is not one of {', '.join(known)}")
    return names


def cpus() -> list[int]:
    """Returns the CPUs that this process may use."""
    return sorted(os.sched_getaffinity(0))


def describe() -> dict:
    """Returns the facts that accompany the figures."""
    return machine.described() | {
        "mitmproxy_rs": _version("mitmproxy_rs"),
        "mitmproxy_watm": _version("mitmproxy_watm"),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None

"""The modules of both projects, and their properties."""

import functools
import pathlib
import subprocess
from dataclasses import dataclass, field

from watm_test_support.repository import MODULES, ROOT


@dataclass(frozen=True)
class Module:
    """A module file."""

    name: str
    path: pathlib.Path = field(repr=False)
    # True if it reverses every piece of up to `PIECE` bytes that it reads at once.
    turns: bool
    # The destination of a fixed dialer without a configuration. "" if it needs one, None if it is
    # not a fixed dialer.
    destination: str | None
    # True for modules of this project. Those of the WATER project close a connection when either
    # direction ends, and lose it when its reader falls behind.
    own: bool

    def on_the_wire(self, message: bytes) -> bytes:
        """Returns the message, of up to `PIECE` bytes, as it is on the other side of the module."""
        return message[::-1] if self.turns else message

    def __str__(self) -> str:
        return self.name


# The bytes that every module reads at once, at least.
PIECE = 1024

# Modules in the Go module of the WATER project: path, SHA-256, destination as a fixed dialer.
_SHIPPED = {
    "v0-plain-go": (
        "examples/v0/watm/plain.go.wasm",
        "85373799d69aa5caa895f4d333a7178623b804d99d0f50815f9c94c167930212",
        None,
    ),
    "v0-reverse-go": (
        "examples/v0/watm/reverse.go.wasm",
        "da52460f576dff6ac3c8d99b97fe792e870e1e4cdbd34e3abbda5926421d80f0",
        None,
    ),
    "v0-plain-rust": (
        "examples/v0/watm/plain.rs.wasm",
        "c09a0037340cea571824d05cd7375c689baf05d730a8a2f3efe79c289184e336",
        None,
    ),
    "v0-reverse-rust": (
        "examples/v0/watm/reverse.rs.wasm",
        "39437559d9b84848406e3aaf8c5051e9f21cd7ae53d8db19b24fe231fdf81c2c",
        None,
    ),
    "v1-plain": (
        "transport/v1/testdata/plain.wasm",
        "4fb6e0010553ed13be7dbea4497b6736896ddf5c6a1987733352eaddc0808dd4",
        "localhost:7700",
    ),
    "v1-reverse": (
        "transport/v1/testdata/reverse.wasm",
        "6d5ab48d5345dc6055786206715cb01bdc0f23adc7cda344e304f65b08848ec6",
        "localhost:7700",
    ),
}

# Other paths of the same files.
_COPIES = {
    "transport/v0/testdata/plain.wasm": "v0-plain-go",
    "transport/v0/testdata/reverse.wasm": "v0-reverse-go",
}


@functools.cache
def go_module() -> pathlib.Path:
    """Returns the folder of the WATER project's Go module, in the version that gowater uses."""
    go = _output(ROOT / "tests" / "setup" / "find-go.sh")
    return pathlib.Path(_output(go, "list", "-m", "-f", "{{.Dir}}", "github.com/refraction-networking/water"))


def shipped() -> list[Module]:
    """Returns the modules of the WATER project."""
    return [
        Module(name, go_module() / path, "reverse" in name, destination, own=False)
        for name, (path, _, destination) in _SHIPPED.items()
    ]


def own() -> list[Module]:
    """Returns the modules of this project for WATER v1."""
    return [
        Module(f"own-{name}", MODULES / f"{name}.watm1.wasm", name == "reverse", "", own=True)
        for name in ("plain", "reverse")
    ]


def components() -> list[Module]:
    """Returns the components of this project."""
    return [
        Module(f"own-{name}-component", MODULES / f"{name}.wasm", name == "reverse", "", own=True)
        for name in ("plain", "reverse")
    ]


def shipped_digests() -> dict[pathlib.Path, str]:
    """Returns the expected SHA-256 of each file of the WATER project."""
    digests = {path: digest for path, digest, _ in _SHIPPED.values()}
    digests |= {path: _SHIPPED[name][1] for path, name in _COPIES.items()}
    return {go_module() / path: digest for path, digest in digests.items()}


def _output(*command: str | pathlib.Path) -> str:
    done = subprocess.run(command, cwd=ROOT / "tests" / "water" / "gowater", check=True, stdout=subprocess.PIPE, text=True, timeout=240)
    return done.stdout.strip()

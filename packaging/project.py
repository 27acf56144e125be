"""Facts about the project that all artefacts share: the version, the time in them, and the files of an installation."""

import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
MODULES = ROOT / "host-python" / "python" / "mitmproxy_watm" / "modules"
"""The sealed modules, and the root that they are sealed under."""

NAMES = ("plain", "proxy-protocol", "reverse", "shadowsocks", "socks5", "tls", "tun", "wireguard")
"""The modules of an artefact."""

HOST_PROGRAM = Path(os.environ.get("WATM_HOST_PROGRAM", ROOT / "target" / "release" / "watm"))
"""The program for this machine, which writes the manual and verifies the modules: `make dist` names the one that it builds."""

SEAL = [ROOT / "target" / "release" / "watm-seal-packaged", ROOT / "host-python" / "packaging"]
"""The command that seals the modules of a wheel: its arguments are the folders of the state and the modules, and the modules."""

SUMMARY = "Runs sandboxed transport modules as tunnels, proxies and servers"
SHELLS = {
    "bash": "share/bash-completion/completions/watm",
    "fish": "share/fish/vendor_completions.d/watm.fish",
    "zsh": "share/zsh/site-functions/_watm",
}


@dataclass(frozen=True)
class File:
    """A file of an installation, with its path below the prefix."""

    path: str
    content: bytes
    mode: int = 0o644
    owner: int = 0
    """The user and group of the file and of the folder that it is in."""


def version() -> str:
    """The version of the workspace, which all crates and wheels have."""
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def date() -> int:
    """The time that is written into artefacts, in seconds since 1970: that of the commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or output([ROOT / "packaging" / "date.sh"]))


def program(target: str) -> File:
    """The program that was built for a target."""
    name = "watm.exe" if "windows" in target else "watm"
    file = ROOT / "build" / "dist-target" / target / "dist" / name
    if not file.is_file():
        sys.exit(f"{file} is missing: make it with `make dist-program-{target}`")
    return File(f"bin/{name}", file.read_bytes(), 0o755)


def library(target: str) -> bytes:
    """The native half of the Python package that was built for a target."""
    name = "_native.dll" if "windows" in target else "lib_native.dylib" if "apple" in target else "lib_native.so"
    file = ROOT / "build" / "dist-target" / target / "dist" / name
    if not file.is_file():
        sys.exit(f"{file} is missing: make it with `make dist-wheel-{target}`")
    return file.read_bytes()


def modules() -> list[File]:
    """The sealed modules with their root. Ends this program if one is missing, or if its seal does not hold."""
    root = MODULES / "root.watm"
    files = [MODULES / f"{name}.wasm" for name in NAMES]
    missing = [file.name for file in (root, *files) if not file.is_file()]
    if missing:
        sys.exit(f"{MODULES} lacks {', '.join(missing)}: make them with `make sealed`")
    for file in files:
        verified = subprocess.run([HOST_PROGRAM, "verify", file, "--root", root], capture_output=True, text=True, timeout=60)
        if verified.returncode != 0:
            sys.exit(f"{file.name}: its seal does not hold: {verified.stderr.strip() or verified.stdout.strip()}")
    return [File(f"share/watm/modules/{file.name}", file.read_bytes()) for file in [*files, root]]


def manual(folder: Path) -> list[File]:
    """The manual pages, by way of an empty folder."""
    output([HOST_PROGRAM, "man", folder])
    return [File(f"share/man/man1/{file.name}", file.read_bytes()) for file in sorted(folder.glob("*.1"))]


def completions() -> list[File]:
    """The scripts that complete command lines."""
    return [File(path, output([HOST_PROGRAM, "completions", shell]).encode()) for shell, path in SHELLS.items()]


def licences() -> list[File]:
    """The licences of the project, and those of linked crates."""
    files = [ROOT / "LICENSE-APACHE", ROOT / "LICENSE-MIT", DIST / "THIRD-PARTY-LICENSES.txt"]
    return [File(f"share/doc/watm/{file.name}", file.read_bytes()) for file in files]


def output(command: list) -> str:
    """The output of a command."""
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def write(name: str, content: bytes) -> None:
    """Writes an artefact into dist/."""
    DIST.mkdir(exist_ok=True)
    (DIST / name).write_bytes(content)
    print(f"dist/{name}: {len(content) / 1e6:.1f} MB")

"""Stubs of the libraries of macOS, for a linker that has no SDK: stubs.py FOLDER

A stub (`NAME.tbd`, version 4 of Apple's text format) has the place of a library and its symbols. Those of a framework
are the ones that the bindings in the dependency graph declare, which are all that can be linked. The system's library
is zig's stub. Crates name other libraries without using them, and the linker drops them again.
"""

import importlib.resources
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

FRAMEWORKS = {"CoreFoundation": "core-foundation-sys", "Security": "security-framework-sys"}
"""Each framework, and the crate that binds it."""

SYSTEM = ("System", "c", "m")
"""Names of the system's library."""

UNUSED = {"charset": "libcharset.1", "iconv": "libiconv.2"}
"""Libraries that crates name, with the files that they stand for."""

# Functions and constants, inside an `extern` block or not: more than the framework has does no harm.
_DECLARED = re.compile(r"^\s*pub (?:fn|static) (k?[A-Z][A-Za-z0-9_]+)\s*[(:]", re.MULTILINE)


def sources() -> dict[str, Path]:
    """The folders of all packages in the dependency graph."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", ROOT / "Cargo.toml"]
    output = subprocess.run(command, check=True, capture_output=True, timeout=300).stdout
    return {package["name"]: Path(package["manifest_path"]).parent for package in json.loads(output)["packages"]}


def symbols(crate: Path) -> list[str]:
    """The names that a crate declares, as the linker knows them."""
    found = {name for file in crate.glob("src/**/*.rs") for name in _DECLARED.findall(file.read_text())}
    return sorted(f"_{name}" for name in found)


def stub(place: str, names: list[str]) -> str:
    """The text of the stub of a library."""
    lines = ",\n                       ".join(names)
    return f"""--- !tapi-tbd
tbd-version:     4
targets:         [ x86_64-macos, arm64-macos ]
install-name:    '{place}'
exports:
  - targets:         [ x86_64-macos, arm64-macos ]
    symbols:         [ {lines} ]
...
"""


def main(folder: Path) -> None:
    packages = sources()
    for framework, crate in FRAMEWORKS.items():
        names = symbols(packages[crate])
        if not names:
            sys.exit(f"stubs.py: {crate} declares nothing that is recognised")
        place = f"/System/Library/Frameworks/{framework}.framework"
        write(folder / f"{place[1:]}/{framework}.tbd", stub(f"{place}/Versions/A/{framework}", names))
    libraries = folder / "usr" / "lib"
    for name, library in UNUSED.items():
        write(libraries / f"lib{name}.tbd", stub(f"/usr/lib/{library}.dylib", []))
    system = importlib.resources.files("ziglang") / "lib" / "libc" / "darwin" / "libSystem.tbd"
    for name in SYSTEM:
        write(libraries / f"lib{name}.tbd", system.read_text())


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

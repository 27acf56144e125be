"""Stubs of Apple's frameworks, for a linker that has no SDK: frameworks.py FOLDER

A stub (`NAME.framework/NAME.tbd`, version 4 of Apple's text format) has the framework's place and its symbols. The
symbols are those that the bindings in the dependency graph declare, which are all that can be linked.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

FRAMEWORKS = {"CoreFoundation": "core-foundation-sys", "Security": "security-framework-sys"}
"""Each framework, and the crate that binds it."""

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


def stub(framework: str, names: list[str]) -> str:
    """The text of a stub."""
    lines = ",\n                       ".join(names)
    return f"""--- !tapi-tbd
tbd-version:     4
targets:         [ x86_64-macos, arm64-macos ]
install-name:    '/System/Library/Frameworks/{framework}.framework/Versions/A/{framework}'
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
            sys.exit(f"frameworks.py: {crate} declares nothing that is recognised")
        file = folder / f"{framework}.framework" / f"{framework}.tbd"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(stub(framework, names))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

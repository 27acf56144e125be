"""The wheel of `mitmproxy-watm` for a target: package.py TARGET

build.sh has built the library in it. `make wheel` has maturin make the wheel for this machine. maturin builds all
dependencies of the library again, which the program has too, and cannot link it for Windows without Microsoft's tools.
"""

import sys
import tomllib
from pathlib import Path

import archives
import project
import wheels
from project import File

INTERPRETER = "cp311-abi3"
"""The stable interface of the oldest Python: see the feature of pyo3 in Cargo.toml."""

PLATFORMS = {
    "x86_64-unknown-linux-gnu": "manylinux_2_17_x86_64.manylinux2014_x86_64",
    "aarch64-unknown-linux-gnu": "manylinux_2_17_aarch64.manylinux2014_aarch64",
    "x86_64-unknown-linux-musl": "musllinux_1_2_x86_64",
    "aarch64-unknown-linux-musl": "musllinux_1_2_aarch64",
    "aarch64-apple-darwin": "macosx_11_0_arm64",
    "x86_64-apple-darwin": "macosx_11_0_x86_64",
    "x86_64-pc-windows-gnullvm": "win_amd64",
    "aarch64-pc-windows-gnullvm": "win_arm64",
}

HOST_PYTHON = project.ROOT / "host-python"
PACKAGE = HOST_PYTHON / "python" / "mitmproxy_watm"


def wheel(target: str) -> None:
    """Writes the wheel into dist/."""
    version, platforms = project.version(), PLATFORMS[target]
    about = tomllib.loads((HOST_PYTHON / "pyproject.toml").read_text())["project"]
    info = f"mitmproxy_watm-{version}.dist-info"
    licences = [File(f"{info}/licenses/{Path(file.path).name}", file.content) for file in project.licences()]
    files = [
        *sources(),
        *(File(f"mitmproxy_watm/modules/{Path(file.path).name}", file.content) for file in project.modules()),
        library(target),
        File(f"{info}/METADATA", metadata(about, version, [Path(file.path).name for file in licences]).encode()),
        File(f"{info}/entry_points.txt", entry_points(about["scripts"]).encode()),
        wheels.about(info, INTERPRETER, platforms),
        *licences,
    ]
    files.append(wheels.record(info, files))
    project.write(f"mitmproxy_watm-{version}-{INTERPRETER}-{platforms}.whl", archives.pack(files, project.date()))


def sources() -> list[File]:
    """The files of the package that are in git."""
    names = project.output(["git", "-C", PACKAGE, "ls-files"]).splitlines()
    return [File(f"mitmproxy_watm/{name}", (PACKAGE / name).read_bytes()) for name in sorted(names)]


def library(target: str) -> File:
    """The native half, with the name that Python looks for."""
    name = "_native.pyd" if "windows" in target else "_native.abi3.so"
    return File(f"mitmproxy_watm/{name}", project.library(target), 0o755)


def metadata(about: dict, version: str, licences: list[str]) -> str:
    """The file METADATA: https://packaging.python.org/en/latest/specifications/core-metadata/."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {about['name']}",
        f"Version: {version}",
        f"Summary: {about['description']}",
        f"License-Expression: {about['license']}",
        *(f"License-File: {name}" for name in licences),
        *(f"Classifier: {classifier}" for classifier in about["classifiers"]),
        f"Requires-Python: {about['requires-python']}",
        *(f"Requires-Dist: {requirement}" for requirement in about["dependencies"]),
    ]
    for extra, requirements in about["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {requirement}; extra == '{extra}'" for requirement in requirements]
    return "\n".join(lines) + "\n"


def entry_points(scripts: dict[str, str]) -> str:
    """The file entry_points.txt: https://packaging.python.org/en/latest/specifications/entry-points/."""
    return "[console_scripts]\n" + "".join(f"{name}={place}\n" for name, place in sorted(scripts.items()))


if __name__ == "__main__":
    match sys.argv[1:]:
        case [target] if target in PLATFORMS:
            wheel(target)
        case _:
            sys.exit(__doc__)

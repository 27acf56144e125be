"""The crates that are linked into the programs and wheels: their licences, and a bill of materials.

dependencies.py licences|sbom: writes dist/THIRD-PARTY-LICENSES.txt or dist/watm-VERSION.cdx.json (CycloneDX 1.6)
"""

import hashlib
import json
import subprocess
import sys
import uuid
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import project

MANIFESTS = ("Cargo.toml", "watm/Cargo.toml", "watm/tls/Cargo.toml")
"""The workspaces: the host, and the modules that it carries."""

SHIPPED = {
    "watm", "watm-python", "watm-wireguard", "watm-plain", "watm-proxy-protocol", "watm-reverse", "watm-shadowsocks", "watm-tun",
    "watm-socks5", "watm-tls",
}  # fmt: skip
"""The crates that artefacts are made of."""

LICENCE_FILES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "UNLICENSE*")


def packages() -> list[dict]:
    """The packages that what is shipped depends on, for any machine, without those that only build it."""
    found: dict[str, dict] = {}
    for manifest in MANIFESTS:
        command = ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", project.ROOT / manifest]
        output = subprocess.run(command, check=True, capture_output=True, timeout=300).stdout
        graph = json.loads(output)
        known = {package["id"]: package for package in graph["packages"]}
        edges = {node["id"]: node["deps"] for node in graph["resolve"]["nodes"]}
        waiting = [id for id in graph["workspace_members"] if known[id]["name"] in SHIPPED]
        seen = set(waiting)
        while waiting:
            id = waiting.pop()
            found[id] = known[id]
            for edge in edges[id]:
                linked = any(kind["kind"] is None for kind in edge["dep_kinds"])
                if linked and edge["pkg"] not in seen:
                    seen.add(edge["pkg"])
                    waiting.append(edge["pkg"])
    return sorted(found.values(), key=lambda package: (package["name"], package["version"]))


def is_ours(package: dict) -> bool:
    """Returns true for a package of this repository."""
    return package["source"] is None


def licences(crates: list[dict]) -> str:
    """The text of each licence once, with the crates that it belongs to."""
    texts: dict[str, list[str]] = defaultdict(list)
    without = []
    for crate in crates:
        if is_ours(crate):
            continue
        name = f"{crate['name']} {crate['version']}"
        folder = Path(crate["manifest_path"]).parent
        files = sorted({file for pattern in LICENCE_FILES for file in folder.glob(pattern) if file.is_file()})
        if not files:
            without.append(f"{name}: {crate['license']}, {crate['repository'] or 'no repository'}")
        for file in files:
            texts[file.read_text(errors="replace").strip()].append(name)
    parts = ["What is linked into WATM's programs, wheels and modules, and under which licences.\n"]
    for text, names in sorted(texts.items(), key=lambda item: item[1]):
        parts.append("=" * 80 + "\n" + "\n".join(names) + "\n" + "-" * 80 + "\n" + text + "\n")
    if without:
        parts.append("=" * 80 + "\nCrates that come without a licence's text:\n" + "\n".join(without) + "\n")
    return "\n".join(parts)


def bill(crates: list[dict]) -> dict:
    """A bill of materials: https://cyclonedx.org/docs/1.6/json/."""
    version = project.version()
    components = [component(crate) for crate in crates if not is_ours(crate)]
    serial = uuid.UUID(bytes=hashlib.sha256(json.dumps(components).encode()).digest()[:16], version=4)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(project.date(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "name": "watm", "version": version, "bom-ref": f"watm@{version}"},
        },
        "components": components,
    }


def component(crate: dict) -> dict:
    """An entry of the bill."""
    locator = f"pkg:cargo/{crate['name']}@{crate['version']}"
    entry = {"type": "library", "name": crate["name"], "version": crate["version"], "bom-ref": locator, "purl": locator}
    if crate["license"]:
        # Before SPDX had expressions, a slash stood for OR.
        entry["licenses"] = [{"expression": crate["license"].replace("/", " OR ")}]
    return entry


if __name__ == "__main__":
    project.DIST.mkdir(exist_ok=True)
    match sys.argv[1:]:
        case ["licences"]:
            (project.DIST / "THIRD-PARTY-LICENSES.txt").write_text(licences(packages()))
        case ["sbom"]:
            text = json.dumps(bill(packages()), indent=1)
            (project.DIST / f"watm-{project.version()}.cdx.json").write_text(text)
        case _:
            sys.exit(__doc__)

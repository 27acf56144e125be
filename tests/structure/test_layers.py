"""Checks the direction of imports within a crate: no cycle spans folders, nor the top-level modules of the host.

Between crates cargo forbids cycles, and `test_dependencies` names the permitted directions.
"""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CRATES = sorted(path.parent for path in (ROOT / "runtime").glob("**/Cargo.toml"))
TRANSPORTS = sorted(path.parent for path in (ROOT / "watm").glob("*/Cargo.toml"))

# The generated types of WIT name the host's types of their resources.
GENERATED = {"bindings"}

_NAME = r"(\{(?:[^{}]|\{[^}]*\})*\}|[a-z_0-9]+)"


def imports(sources: Path) -> dict[str, set[str]]:
    """Returns the top-level modules that each top-level module of a crate imports."""
    tops = {path.stem for path in sources.iterdir()} - {"lib", "main"} - GENERATED
    found: dict[str, set[str]] = {top: set() for top in tops}
    for path in sources.rglob("*.rs"):
        top = path.relative_to(sources).parts[0].removesuffix(".rs")
        if top not in tops:
            continue
        text = re.sub(r"//[^\n]*", "", path.read_text()).partition("#[cfg(test)]\nmod tests")[0]
        beside = rf"|\bsuper::{_NAME}" if path.parent == sources else ""
        for match in re.finditer(rf"\bcrate::{_NAME}{beside}", text):
            group = next(filter(None, match.groups()))
            for name in re.split(r",(?![^{]*\})", group.strip("{}")):
                found[top].add(name.strip().partition("::")[0])
    return {top: (names & tops) - {top} for top, names in found.items()}


def knots(graph: dict[str, set[str]]) -> list[set[str]]:
    """Returns the sets of modules that reach each other."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for name in graph[waiting.pop()] - seen:
                seen.add(name)
                waiting.append(name)
        return seen

    reach = {name: reached(name) for name in graph}
    found: list[set[str]] = []
    for name in sorted(graph):
        knot = {other for other in reach[name] if name in reach[other]} | {name}
        if len(knot) > 1 and knot not in found:
            found.append(knot)
    return found


@pytest.mark.parametrize("crate", CRATES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_import_in_one_direction(crate: Path) -> None:
    assert knots(imports(crate / "src")) == []


def test_a_cycle_is_found(tmp_path: Path) -> None:
    (tmp_path / "low.rs").write_text("use crate::Error;\nuse crate::high::Top;\n")
    (tmp_path / "high.rs").write_text("use crate::{middle::{A, b}, Error};\n// crate::other\n")
    (tmp_path / "middle.rs").write_text("use super::low;\n")
    (tmp_path / "other.rs").write_text("use crate::low;\n#[cfg(test)]\nmod tests {\n    use crate::high;\n}\n")
    assert knots(imports(tmp_path)) == [{"high", "low", "middle"}]


# A path that begins with `crate`, `super` or `self`, with braces up to three deep.
_PATH = re.compile(
    r"\b(crate|super|self)::((?:\w+::)*(?:\w+|\*|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}))"
)


def expanded(path: str) -> list[str]:
    """Returns the paths of a use tree: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    match = re.fullmatch(r"((?:\w+::)*)\{(.*)\}", path.strip(), re.DOTALL)
    if not match:
        return [path.strip()]
    items, depth = [""], 0
    for letter in match[2]:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            items.append("")
        else:
            items[-1] += letter
    return [match[1] + each for item in items if item.strip() for each in expanded(item)]


def modules(sources: Path) -> dict[tuple[str, ...], str]:
    """Returns the modules of a crate by their paths, with their code."""
    found: dict[tuple[str, ...], str] = {}
    for path in sorted(sources.rglob("*.rs")):
        parts = path.relative_to(sources).with_suffix("").parts
        parts = parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts
        text = re.sub(r"//[^\n]*", "", path.read_text()).partition("#[cfg(test)]\nmod tests")[0]
        found[parts] = found.get(parts, "") + text
    return {parts: text for parts, text in found.items() if not GENERATED & set(parts)}


def targets(here: tuple[str, ...], text: str, known: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Returns the modules of the crate that a module imports."""
    found = set()
    for kind, path in _PATH.findall(text):
        for one in expanded(path):
            names = one.split("::")
            base = {"crate": (), "self": here, "super": here[:-1]}[kind]
            while names and names[0] == "super":
                base, names = base[:-1], names[1:]
            full = (*base, *names)
            while full and full not in known:
                full = full[:-1]
            found.add(full)
    return found - {here, ()}


def folder_knots(sources: Path) -> list[set[str]]:
    """Returns the cycles between neighbours in a folder of which one is a folder itself."""
    known = modules(sources)
    edges = [(here, there) for here, text in known.items() for there in targets(here, text, set(known))]
    found = []
    for parent in sorted({parts[:depth] for parts in known for depth in range(len(parts))}):
        depth = len(parent)
        children = {parts[depth] for parts in known if len(parts) > depth and parts[:depth] == parent}
        folders = {parts[depth] for parts in known if len(parts) > depth + 1 and parts[:depth] == parent}
        graph: dict[str, set[str]] = {child: set() for child in children}
        for here, there in edges:
            if min(len(here), len(there)) > depth and here[:depth] == there[:depth] == parent and here[depth] != there[depth]:
                graph[here[depth]].add(there[depth])
        found += [knot for knot in knots(graph) if knot & folders]
    return found


@pytest.mark.parametrize("crate", CRATES + TRANSPORTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_cycle_spans_folders(crate: Path) -> None:
    assert folder_knots(crate / "src") == []


def test_a_cycle_that_spans_folders_is_found(tmp_path: Path) -> None:
    for folder in ("wire", "wire/frame"):
        (tmp_path / folder).mkdir()
    (tmp_path / "lib.rs").write_text("mod wire;\nmod peer;\n")
    (tmp_path / "wire" / "mod.rs").write_text("use crate::peer::Peer;\nuse self::frame::Frame;\n")
    (tmp_path / "wire" / "frame" / "mod.rs").write_text("use super::super::peer;\nuse super::size::{Size, MOST};\n")
    (tmp_path / "wire" / "frame" / "head.rs").write_text("pub struct Head;\n")
    (tmp_path / "wire" / "size.rs").write_text("pub struct Size;\n")
    (tmp_path / "peer.rs").write_text("pub struct Peer;\n")
    assert folder_knots(tmp_path) == []
    (tmp_path / "wire" / "size.rs").write_text("use super::{frame::{Frame}, other};\n")
    assert folder_knots(tmp_path) == [{"frame", "size"}]
    (tmp_path / "peer.rs").write_text("use crate::{wire::frame::{self, Frame}, other};\n")
    assert folder_knots(tmp_path) == [{"peer", "wire"}, {"frame", "size"}]


def beside_folders(names: list[str]) -> list[str]:
    """Returns the Rust files beside a folder of the same name, in which modules are otherwise `mod.rs`."""
    folders = {str(parent) for name in names for parent in Path(name).parents}
    return [name for name in names if name.endswith(".rs") and name.removesuffix(".rs") in folders]


def test_a_module_with_parts_is_a_folder_with_mod_rs() -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    names = [name for name in names if (ROOT / name).exists()]
    assert beside_folders(names) == []


def test_a_file_beside_its_folder_is_found() -> None:
    names = ["a/src/lib.rs", "a/src/flow.rs", "a/src/flow/send.rs", "a/src/tcp/mod.rs", "a/src/tcp/open.rs"]
    assert beside_folders(names) == ["a/src/flow.rs"]

"""Checks the direction of imports within a crate of the host: no cycle spans its top-level modules.

Between crates cargo forbids cycles, and `test_dependencies` names the permitted directions.
"""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CRATES = sorted(path.parent for path in (ROOT / "runtime").glob("**/Cargo.toml"))

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


# The network stack is being rewritten; its folder follows with the rewrite.
OTHER_STYLE = {"watm/netstack/src/tcp/flow.rs"}


def beside_folders(names: list[str]) -> list[str]:
    """Returns the Rust files beside a folder of the same name, in which modules are otherwise `mod.rs`."""
    folders = {str(parent) for name in names for parent in Path(name).parents}
    return [name for name in names if name.endswith(".rs") and name.removesuffix(".rs") in folders]


def test_a_module_with_parts_is_a_folder_with_mod_rs() -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    names = [name for name in names if (ROOT / name).exists()]
    assert set(beside_folders(names)) == OTHER_STYLE & set(names)


def test_a_file_beside_its_folder_is_found() -> None:
    names = ["a/src/lib.rs", "a/src/flow.rs", "a/src/flow/send.rs", "a/src/tcp/mod.rs", "a/src/tcp/open.rs"]
    assert beside_folders(names) == ["a/src/flow.rs"]

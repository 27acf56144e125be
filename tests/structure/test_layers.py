"""The direction of imports within a crate of the host: no cycle spans its top-level modules.

Between crates cargo forbids cycles, and `test_dependencies` names the permitted directions.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CRATES = sorted(path.parent for path in (ROOT / "runtime").glob("**/Cargo.toml"))

# The types of WIT name the host's types of their resources.
GENERATED = {"bindings"}

_NAME = r"(\{(?:[^{}]|\{[^}]*\})*\}|[a-z_0-9]+)"


def imports(sources: Path) -> dict[str, set[str]]:
    """The top-level modules that each top-level module of a crate imports."""
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
    """The sets of modules that reach each other."""

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

"""Checks that Python imports modules from packages only: `tests`, and the installed `watm_test_support`."""

import ast
import subprocess

import pytest

from watm_test_support.repository import ROOT


def sources() -> list[str]:
    """Returns the names of all Python files in the repository, tracked or not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    return [name for name in names if (ROOT / name).exists()]


def edits(text: str) -> list[int]:
    """Returns the lines that name `sys.path`, by any import."""
    found = []
    for node in ast.walk(ast.parse(text)):
        attribute = isinstance(node, ast.Attribute) and node.attr == "path" and ast.unparse(node.value) == "sys"
        imported = isinstance(node, ast.ImportFrom) and node.module == "sys" and any(name.name == "path" for name in node.names)
        if attribute or imported or isinstance(node, ast.Import) and any(name.name == "site" for name in node.names):
            found.append(node.lineno)
    return found


def test_no_file_edits_the_search_path() -> None:
    names = sources()
    assert names
    found = {name: lines for name in names if (lines := edits((ROOT / name).read_text()))}
    assert not found, f"import from `watm_test_support` or relatively: {found}"


@pytest.mark.parametrize(
    "text",
    ["import sys\nsys.path.append('a')\n", "import sys\nsys.path[:0] = ['a']\n", "import sys\nsys.path += ['a']\n"]
    + ["a = 1\nfrom sys import path\n", "a = 1\nimport site\n"],
)
def test_an_edit_of_the_search_path_is_found(text: str) -> None:
    assert edits(text) == [2]
    assert edits("import os\nimport sys\nos.path.join(sys.argv[0])\n") == []

"""Checks that the tables of tests on crates' pages name existing tests."""

import re
from pathlib import Path

import pytest

from watm_test_support.repository import ROOT

# For each page the pattern of its rows, and the folder of Rust tests for the beginning of a path.
# Other folders are those in `tests`, in Python.
PAGES = [
    ("watm/proxy-protocol/src/lib.rs", [f"P{number}" for number in range(1, 16)], {"": "watm/proxy-protocol/tests"}),
    (
        "runtime/seal/src/lib.rs",
        [str(number) for number in range(1, 26)],
        {"host": "runtime/tests/it", "": "runtime/seal/tests/it"},
    ),
]
ROW = re.compile(r"^//! \| (P?\d+) \|.*\| (`[^|]*`) \|$", re.MULTILINE)


def place(test: str, folders: dict[str, str]) -> tuple[Path, re.Pattern[str]]:
    """Returns the file of a test of a page, and the beginning of the test there."""
    *modules, name = test.split("::")
    if len(modules) == 2 and modules[0] not in folders:
        return ROOT.joinpath("tests", *modules).with_suffix(".py"), re.compile(rf"^(async )?def {name}\(", re.MULTILINE)
    folder = folders[modules.pop(0) if modules[0] in folders else ""]
    path = ROOT.joinpath(folder, *modules)
    path = path / "mod.rs" if path.is_dir() else path.with_suffix(".rs")
    return path, re.compile(rf"^#\[test\]\nfn {name}\(\) \{{", re.MULTILINE)


@pytest.mark.parametrize("page, numbers, folders", PAGES, ids=[page for page, *_ in PAGES])
def test_a_page_names_tests_that_there_are(page: str, numbers: list[str], folders: dict[str, str]) -> None:
    rows = ROW.findall((ROOT / page).read_text())
    assert [number for number, _ in rows] == numbers
    for number, tests in rows:
        for test in tests.split(", "):
            file, begin = place(test.strip("`"), folders)
            assert begin.search(file.read_text()), f"row {number}: {test} is not in {file}"

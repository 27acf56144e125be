"""The pages of crates that list what is tested name tests that there are."""

import re
from pathlib import Path

import pytest

from watm_test_support.repository import ROOT

# For each page its rows, and in which folder of Rust a test is whose path begins so; the
# folders of other tests are those in `tests`, in Python.
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
    """The file that a test of a page is in, and how it begins there."""
    *modules, name = test.split("::")
    if len(modules) == 2 and modules[0] not in folders:
        return ROOT.joinpath("tests", *modules).with_suffix(".py"), re.compile(rf"^(async )?def {name}\(", re.MULTILINE)
    folder = folders[modules.pop(0) if modules[0] in folders else ""]
    return ROOT.joinpath(folder, *modules).with_suffix(".rs"), re.compile(rf"^#\[test\]\nfn {name}\(\) \{{", re.MULTILINE)


@pytest.mark.parametrize("page, numbers, folders", PAGES, ids=[page for page, *_ in PAGES])
def test_a_page_names_tests_that_there_are(page: str, numbers: list[str], folders: dict[str, str]) -> None:
    rows = ROW.findall((ROOT / page).read_text())
    assert [number for number, _ in rows] == numbers
    for number, tests in rows:
        for test in tests.split(", "):
            file, begin = place(test.strip("`"), folders)
            assert begin.search(file.read_text()), f"row {number}: {test} is not in {file}"

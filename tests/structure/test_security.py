"""SECURITY.md names a test for every promise, and the tests exist."""

import re

import pytest

from watm_test_support.repository import ROOT

ROW = re.compile(r"^\| (?P<promise>.*?) \| (?P<tests>.*) \|$", re.MULTILINE)
# How a test begins in each language.
BEGINNINGS = {
    ".py": r"^(async )?def {name}\(",
    ".rs": r"^\s*#\[test\]\n(\s*#\[.*\]\n)*\s*fn {name}\(\)",
}


def promises() -> list[tuple[str, str]]:
    """Each promise with the tests that its row names."""
    page = (ROOT / "SECURITY.md").read_text()
    rows = [(row["promise"], row["tests"]) for row in ROW.finditer(page)]
    return [(promise, tests) for promise, tests in rows if promise != "promise" and set(promise) != {"-"}]


def exists(test: str) -> bool:
    """Is there such a test, as `FILE::NAME`?"""
    file, _, name = test.partition("::")
    path = ROOT / file
    beginning = BEGINNINGS[path.suffix].format(name=re.escape(name))
    return path.exists() and re.search(beginning, path.read_text(), re.MULTILINE) is not None


@pytest.mark.parametrize("promise, tests", promises())
def test_a_promise_names_tests_that_there_are(promise: str, tests: str) -> None:
    names = re.findall(r"`([^`]+)`", tests)
    assert names, f"no test for: {promise}"
    assert [name for name in names if not exists(name)] == []


def test_the_page_has_promises_to_everybody() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    for whom in ("network", "peer", "module", "application", "local users", "delivery channel"):
        assert re.search(rf"^### .*{whom}", page, re.MULTILINE), whom
    assert len(promises()) > 20


def test_a_test_that_is_not_there_is_noticed() -> None:
    assert not exists("runtime/tests/it/cache.rs::no_such_test")
    assert not exists("tests/no_such_file.py::test_nothing")

"""SECURITY.md names a test for every promise, the tests exist, and defences can be switched off."""

import re

import pytest

from tests.prove import defences
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


DEFENCES, LEFT_OUT = defences.read()


def rows_of(beginning: str) -> list[list[str]]:
    """The tests of each row whose promise begins so."""
    return [re.findall(r"`([^`]+)`", tests) for promise, tests in promises() if promise.startswith(beginning)]


@pytest.mark.parametrize("promise, tests", promises())
def test_each_test_of_a_promise_has_a_defence_to_switch_off_or_a_reason(promise: str, tests: str) -> None:
    cited = set(re.findall(r"`([^`]+)`", tests))
    of_defences = {test for it in DEFENCES if any(promise.startswith(each) for each in it.promises) for test in it.tests}
    reasons = [it for it in LEFT_OUT if promise.startswith(it.promise)]
    left_out = {test for it in reasons for test in it.tests or cited - of_defences}
    assert cited - of_defences == left_out, "in tests/prove/defences.toml"
    assert all(it.reason for it in reasons)


@pytest.mark.parametrize("defence", DEFENCES, ids=lambda it: it.name)
def test_a_defence_is_found_and_its_tests_are_those_of_its_promises(defence: defences.Defence) -> None:
    rows = [rows_of(promise) for promise in defence.promises]
    assert all(len(found) == 1 for found in rows), "a promise is the beginning of one row"
    assert set(defence.tests) <= {test for [row] in rows for test in row}
    for switch in defence.switches:
        text = (ROOT / switch.file).read_text()
        assert defences.switched(text, defence.name, switch) != text
    assert any(re.search(r"\bOFF\b", switch.off) for switch in defence.switches)


def test_names_of_defences_differ_and_what_is_left_out_is_promised() -> None:
    names = [defence.name for defence in DEFENCES]
    assert len(names) == len(set(names))
    assert [it.promise for it in LEFT_OUT if len(rows_of(it.promise)) != 1] == []


@pytest.mark.parametrize("mutant", defences.read(ROOT / "tests" / "prove" / "cache.toml")[0], ids=lambda it: it.name)
def test_a_mutant_of_the_cache_is_found_and_its_tests_exist(mutant: defences.Defence) -> None:
    assert mutant.tests and all(map(exists, mutant.tests))
    for switch in mutant.switches:
        assert defences.switched((ROOT / switch.file).read_text(), mutant.name, switch)


def test_a_text_that_moved_is_noticed() -> None:
    switch = DEFENCES[0].switches[0]
    with pytest.raises(AssertionError, match="has this 0 times"):
        defences.switched("another text", "name", switch)

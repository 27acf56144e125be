"""A pytest plugin for tests that need root, or other programs, where these are missing.

As root nothing is skipped: a test that would be skipped fails. Without root a test is skipped if it
calls `root`, or starts a program of `tests/setup/packages` that is not installed. Each skipped test
is a line in the file that `WATM_SKIPPED` names: the test, a tab, the reason.
"""

import os
import pathlib
import shutil
from collections.abc import Iterator

import pytest

from watm_test_support.repository import ROOT

_TABLE = ROOT / "tests" / "setup" / "packages"
# The Debian package of each program, or of each file by its path.
PACKAGES = dict(line.split() for line in _TABLE.read_text().splitlines() if not line.startswith("#"))


def root(why: str) -> None:
    """Skips the running test unless this process is root's. `why` is the subject that needs root,
    as a noun."""
    if os.geteuid() != 0:
        pytest.skip(f"{why} need root")


def program(name: str) -> None:
    """Skips the running test, unless run by root, if a program or file of the table is missing.
    Only programs that a shell starts need this: a program that Python cannot start is noticed
    without it."""
    if os.geteuid() != 0 and not _there(name):
        pytest.skip(_missing(name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    return (yield from _skipping())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    return (yield from _skipping())


def _skipping() -> Iterator[None]:
    try:
        return (yield)
    except BaseException as error:
        name = next((name for name in _not_found(error) if name in PACKAGES and not _there(name)), None)
        if name is not None and os.geteuid() != 0:
            pytest.skip(_missing(name))
        raise


def _there(name: str) -> bool:
    return pathlib.Path(name).exists() if name.startswith("/") else shutil.which(name) is not None


def _missing(name: str) -> str:
    return f"{name} is not installed (Debian's package {PACKAGES[name]})"


def _not_found(error: BaseException) -> Iterator[str]:
    """Yields files that were not found, from an exception, its causes and the exceptions that it
    groups."""
    seen: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or each in seen:
            continue
        seen.append(each)
        if isinstance(each, FileNotFoundError) and each.filename is not None:
            yield os.fsdecode(each.filename)
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
        left += [each.__cause__, each.__context__]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    _noted(report, item.path)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    _noted(report, collector.path)
    return report


def _noted(report: pytest.TestReport | pytest.CollectReport, path: pathlib.Path) -> None:
    """Records a skipped test; as root makes it a failure."""
    if not report.skipped:
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if os.geteuid() == 0:
        report.outcome, report.longrepr = "failed", f"as root nothing may be skipped: {reason}"
    elif file := os.environ.get("WATM_SKIPPED"):
        test = f"{os.path.relpath(path, ROOT)}::{report.nodeid.rpartition('::')[2]}"
        with open(file, "a") as skipped:
            skipped.write(f"{test}\t{reason.removeprefix('Skipped: ')}\n")

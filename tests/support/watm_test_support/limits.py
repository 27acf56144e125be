"""A pytest plugin that sets a time limit for every test.

`@pytest.mark.limit(seconds)` sets another limit. The event loop ends a coroutine test
(`coroutines`), a signal any other. A test that ignores even the signal ends the run, with the stack
of each thread.
"""

import contextlib
import faulthandler
import inspect
import os
import signal
from collections.abc import Iterator

import pytest

from watm_test_support import coroutines

# Seconds for each of setup, call and teardown.
LIMIT = 600
# Seconds after which the signal is repeated, since interrupted code may swallow the failure.
_AGAIN = 10
# Seconds after the limit at which the run ends.
_END = 120

# Standard error before pytest captures it.
_stderr = os.dup(2)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limit(seconds): the test may take this long")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with _limited(item, _usual(item)):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    seconds = _usual(item)
    if inspect.iscoroutinefunction(item.obj):
        # The event loop's own limit comes first, unless a coroutine never waits.
        seconds = coroutines.limit(item) + coroutines.LIMIT
    with _limited(item, seconds):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with _limited(item, _usual(item)):
        return (yield)


def _usual(item: pytest.Item) -> float:
    marker = item.get_closest_marker("limit")
    if marker is None or inspect.iscoroutinefunction(item.obj):
        return LIMIT
    return marker.args[0]


@contextlib.contextmanager
def _limited(item: pytest.Item, seconds: float) -> Iterator[None]:
    def over(*_: object) -> None:
        pytest.fail(f"{item.nodeid} takes longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    faulthandler.dump_traceback_later(seconds + _END, exit=True, file=_stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

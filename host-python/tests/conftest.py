"""Every test has a bound in time; what a test needs and does not find is a failure."""

import asyncio
import inspect
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "wgclient"), str(ROOT / "host-python" / "tests")]

# Seconds; a test with a longer pause of its own says so with `@pytest.mark.limit(seconds)`.
LIMIT = 30


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limit(seconds): a coroutine test may take this long")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs each coroutine test in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    marker = pyfuncitem.get_closest_marker("limit")
    seconds = marker.args[0] if marker else LIMIT
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await pyfuncitem.obj(**arguments)

    asyncio.run(bounded())
    return True

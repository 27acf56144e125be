"""Real peers against our server. What a test needs and does not find is a failure."""

import asyncio
import inspect
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("interop", "wgclient", "bench", "demo")]

# Seconds; a test that has its own long pause says so with `@pytest.mark.limit(seconds)`.
_LIMIT = 60


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limit(seconds): a coroutine test may take this long")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs coroutine tests in an event loop of their own, bounded."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    marker = pyfuncitem.get_closest_marker("limit")
    seconds = marker.args[0] if marker else _LIMIT
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await pyfuncitem.obj(**arguments)

    asyncio.run(bounded())
    return True

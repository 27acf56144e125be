"""A plugin of pytest that runs coroutine tests."""

import asyncio
import inspect

import pytest

# Seconds; a test that has its own long pause says so with `@pytest.mark.limit(seconds)`.
LIMIT = 60


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs each coroutine test in an event loop of its own, bounded in time."""
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

"""A plugin of pytest that runs coroutine tests."""

import asyncio
import inspect

import pytest

# Seconds; a test that has its own long pause says so with `@pytest.mark.limit(seconds)`.
LIMIT = 60


def limit(item: pytest.Item) -> float:
    """How long a coroutine test may take, in seconds."""
    marker = item.get_closest_marker("limit")
    return marker.args[0] if marker else LIMIT


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs each coroutine test in an event loop of its own, bounded in time."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def bounded() -> None:
        async with asyncio.timeout(limit(pyfuncitem)):
            await pyfuncitem.obj(**arguments)

    asyncio.run(bounded())
    return True

"""A pytest plugin that runs coroutine tests."""

import asyncio
import inspect

import pytest

# Seconds. A test with a long pause of its own sets another limit with
# `@pytest.mark.limit(seconds)`.
LIMIT = 60


def limit(item: pytest.Item) -> float:
    """Returns the time limit of a coroutine test, in seconds."""
    marker = item.get_closest_marker("limit")
    return marker.args[0] if marker else LIMIT


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs each coroutine test in an event loop of its own, with a time limit."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def bounded() -> None:
        async with asyncio.timeout(limit(pyfuncitem)):
            await pyfuncitem.obj(**arguments)

    asyncio.run(bounded())
    return True

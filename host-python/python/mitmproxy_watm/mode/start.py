"""Holds connections back until mitmproxy has started. `addon.py` asks it.

mitmproxy listens before it calls the hook `running` of its addons, one after the other. Modules and upstreams start in
that hook too, which takes a second if they have to be compiled. A request that arrives earlier meets addons that do not run
yet. mitmproxy then fails the request, and ends, because it logged an error during its start.
"""

import asyncio

from mitmproxy import ctx


class Start:
    """The start of one mitmproxy."""

    def __init__(self) -> None:
        self._over = asyncio.Event()

    def end_after_other_addons(self) -> None:
        """End the start when all other addons have had the hook `running`. Call it in this hook."""
        # mitmproxy goes through its list of addons, which may grow meanwhile.
        ctx.master.addons.add(_Last(self))

    def end(self) -> None:
        """Let connections through."""
        self._over.set()

    async def wait(self) -> None:
        """Wait for the end of the start."""
        await self._over.wait()


class _Last:
    """The addon that mitmproxy calls last."""

    def __init__(self, start: Start) -> None:
        self._start = start
        # Each addon has a name of its own.
        self.name = f"watm-start-{id(self)}"

    def running(self) -> None:
        self._start.end()

"""Holds connections back until mitmproxy has started. `addon.py` asks it.

mitmproxy listens before it calls the hook `running` of its addons, one after the other. Modules and upstreams start there
too, which takes a second if they are compiled. A request that comes earlier meets addons that do not run yet: mitmproxy
fails it, and then ends, because an error was logged during its start.
"""

import asyncio

from mitmproxy import ctx


class Start:
    """The start of one mitmproxy."""

    def __init__(self) -> None:
        self._over = asyncio.Event()

    def begins(self) -> None:
        """Wait for the hook `running` of all addons that have not had it yet. Call it in this hook."""
        # The hook goes through the list of addons, which may grow meanwhile.
        ctx.master.addons.add(_Last(self._over))

    def is_over(self) -> None:
        """Let connections through."""
        self._over.set()

    async def wait(self) -> None:
        """Wait until all addons run."""
        await self._over.wait()


class _Last:
    """The addon that mitmproxy tells last."""

    def __init__(self, over: asyncio.Event) -> None:
        self._over = over
        # Each addon has a name of its own.
        self.name = f"watm-start-{id(self)}"

    def running(self) -> None:
        self._over.set()

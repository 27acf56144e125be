"""The hook at which mitmproxy opens its connections to servers.

mitmproxy itself has no such hook. `ConnectionHandler.open_connection` calls
`asyncio.open_connection` or `mitmproxy_rs.udp.open_udp_connection`, and all the rest of it (hooks,
limits, errors, metadata) is needed unchanged. So that function runs unchanged, and records the
connection that it opens. The two names that it calls are replaced in its module alone, by functions
that ask an `Opener` first.

These are internals of mitmproxy. The code checks them before it changes anything, and an unknown
shape is an error: no connection bypasses its upstream.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import mitmproxy_rs
from mitmproxy import version
from mitmproxy.connection import Client, Server
from mitmproxy.proxy import server as core

from mitmproxy_watm.stream import Stream
from mitmproxy_watm.supported import RANGE


class Wanted(NamedTuple):
    """A connection that mitmproxy opens."""

    client: Client
    server: Server
    transport: Any
    """The client's own connection."""


Opener = Callable[[Wanted, str, int], Awaitable[Stream | None]]
"""Opens it, to this host and port; returns None if mitmproxy must."""


def install(opener: Opener) -> None:
    """Ask `opener` for each connection that the running event loop's mitmproxy opens from now on.

    Raises RuntimeError if this mitmproxy opens them in an unknown way.
    """
    global _installed
    if not _installed:
        _check()
        core.ConnectionHandler.open_connection = _noting(core.ConnectionHandler.open_connection)  # type: ignore[method-assign, assignment]
        core.asyncio = _Instead(asyncio, open_connection=_open_connection)  # type: ignore[attr-defined]
        udp = _Instead(mitmproxy_rs.udp, open_udp_connection=_open_udp_connection)
        core.mitmproxy_rs = _Instead(mitmproxy_rs, udp=udp)  # type: ignore[attr-defined]
        _installed = True
    _openers[asyncio.get_running_loop()] = opener


def remove(opener: Opener) -> None:
    """Stop asking it."""
    for loop in [loop for loop, known in _openers.items() if known == opener]:
        del _openers[loop]


NAMES = {"asyncio", "open_connection", "mitmproxy_rs", "udp", "open_udp_connection", "transport_protocol", "address"}
"""The names that mitmproxy's function must use."""

_installed = False
_openers: WeakKeyDictionary[asyncio.AbstractEventLoop, Opener] = WeakKeyDictionary()
_wanted: ContextVar[Wanted | None] = ContextVar("watm_wanted", default=None)


class _Instead(ModuleType):
    """A module with some of its names replaced."""

    def __init__(self, original: Any, **replaced: Any) -> None:
        super().__init__(original.__name__)
        self.__dict__.update(replaced)
        self.__dict__["_original"] = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)


def _check() -> None:
    function = inspect.unwrap(core.ConnectionHandler.open_connection)
    code = getattr(function, "__code__", None)
    known = (
        inspect.iscoroutinefunction(function)
        and list(inspect.signature(function).parameters) == ["self", "command"]
        and code is not None
        and NAMES <= set(code.co_names)
        and core.asyncio is asyncio  # type: ignore[attr-defined]
        and core.mitmproxy_rs is mitmproxy_rs  # type: ignore[attr-defined]
    )
    if not known:
        raise RuntimeError(
            f"mitmproxy {version.VERSION} opens connections in an unsupported way, so none can go through a module; "
            f"versions {RANGE} are known to work"
        )


def _noting(original: Callable[[Any, Any], Awaitable[None]]) -> Callable[[Any, Any], Awaitable[None]]:
    async def open_connection(self: Any, command: Any) -> None:
        client = self.transports.get(self.client)
        # Each connection has a task, and therefore a context, of its own.
        _wanted.set(Wanted(self.client, command.connection, client and client.writer))
        await original(self, command)

    open_connection.__wrapped__ = original  # type: ignore[attr-defined]
    return open_connection


async def _ask(host: str, port: int) -> Stream | None:
    wanted, opener = _wanted.get(), _openers.get(asyncio.get_running_loop())
    return None if wanted is None or opener is None else await opener(wanted, host, port)


async def _open_connection(host: str, port: int, *arguments: Any, **options: Any) -> tuple[Any, Any]:
    stream = await _ask(host, port)
    if stream is None:
        return await asyncio.open_connection(host, port, *arguments, **options)
    return stream, stream


async def _open_udp_connection(host: str, port: int, *arguments: Any, **options: Any) -> Any:
    stream = await _ask(host, port)
    if stream is None:
        return await mitmproxy_rs.udp.open_udp_connection(host, port, *arguments, **options)
    return stream

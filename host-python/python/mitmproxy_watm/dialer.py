"""A module that runs in order to dial, as often as it is asked to."""

import asyncio
import atexit
import errno
import functools
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from mitmproxy_watm import _native
from mitmproxy_watm._logs import set_log_level
from mitmproxy_watm._options import AnyPath, dial_options
from mitmproxy_watm._starting import in_thread
from mitmproxy_watm._wake import LoopWake
from mitmproxy_watm.applications import Applications
from mitmproxy_watm.connection import AnyStream, check_port, opened
from mitmproxy_watm.limits import Limits
from mitmproxy_watm.modules import AnyModule, load_module
from mitmproxy_watm.stream import Origin, Stream
from mitmproxy_watm.updates import AnyUpdates, Updates, read_with_updates


async def start_dialer(
    module: AnyModule,
    *,
    config: str | bytes | None = None,
    allow: Iterable[str] = (),
    keys: Mapping[str, AnyPath] = {},
    limits: Limits = Limits(),
    name: str | None = None,
    unsealed: bool = False,
    udp: str | bool | None = None,
    dns: Sequence[str] | None = None,
    pcap: AnyPath | None = None,
    key_log: AnyPath | None = None,
    fixed: bool = False,
    applications: Applications | None = None,
    updates: AnyUpdates | None = None,
) -> "Dialer":
    """Run a module that dials, for any number of connections and flows of datagrams.

    As `open_connection`, whose arguments these are too. A component has one instance for all of them.

    - `fixed`: the module itself says where to, which `allow` has to admit.
    - `applications`: who may dial; see `Applications.of_wireguard` for WireGuard's `AllowedApps`.
    - `updates`: where newer modules come from meanwhile, as for `start_server`.

    Raises `ValueError` for a configuration that the module refuses, `ModuleError` for one that cannot
    run, and `OSError` for a socket or file that cannot be had.
    """
    loop = asyncio.get_running_loop()
    origin = Origin(loop, LoopWake.of(loop))
    start = functools.partial(
        make_dialer,
        origin,
        module,
        config=config,
        allow=allow,
        keys=keys,
        limits=limits,
        name=name,
        unsealed=unsealed,
        udp=udp,
        dns=dns,
        pcap=pcap,
        key_log=key_log,
        fixed=fixed,
        applications=applications,
        updates=updates,
    )
    return await in_thread(start)


def make_dialer(
    origin: Origin,
    module: AnyModule,
    *,
    unsealed: bool,
    fixed: bool,
    applications: Applications | None,
    updates: AnyUpdates | None,
    **options: Any,
) -> "Dialer":
    """`start_dialer`, blocking. In any thread."""
    set_log_level()
    followed, loaded = read_with_updates(module, updates, origin.wake, unsealed=unsealed)
    try:
        made = dial_options(loaded, **options)
        native = _native.Dialer(loaded, options=made, fixed=fixed)
    except BaseException:
        if followed is not None:
            followed.close()
        raise
    dialer = Dialer(native, origin, made["name"], fixed, applications)
    if followed is not None:
        followed.follow(native, loaded)
        dialer.updates = followed
    return dialer


class Dialer:
    """A running module that dials; also an asynchronous context manager. For one event loop."""

    updates: Updates | None = None
    """Where newer modules come from, and what came of it; None: from nowhere."""

    def __init__(
        self, native: _native.Dialer, origin: Origin, name: str, fixed: bool, applications: Applications | None
    ) -> None:
        """For `start_dialer`."""
        self._native = native
        self._origin = origin
        self._fixed = fixed
        self.name = name
        self.applications = applications
        _running.add(self)

    async def open_connection(
        self, host: str | None = None, port: int | None = None, *, application: str | None = None
    ) -> Stream:
        """Connect to `host` and `port`, or to where the module wants to go if it is fixed.

        - `application`: on whose behalf, by name or path. Where there are rules for applications it
          has to be said, and to be admitted: `PermissionError`.

        Errors as of the function `open_connection`.
        """
        return await self.dial(host, port, False, Stream, application=application)

    async def open_datagrams(
        self, host: str | None = None, port: int | None = None, *, application: str | None = None
    ) -> Stream:
        """Have datagrams carried to `host` and `port`; see the function `open_datagrams`."""
        return await self.dial(host, port, True, Stream, application=application)

    async def dial(
        self,
        host: str | None,
        port: int | None,
        datagrams: bool,
        stream_class: type[AnyStream],
        *,
        application: str | None = None,
    ) -> AnyStream:
        """`open_connection` or `open_datagrams`, with a class of the caller's."""
        self._check(application)
        destination = None
        if not self._fixed:
            if host is None or port is None:
                raise ValueError("host, port: say where to; the module does not")
            check_port(port)
            destination = (host, port)
        native = self._native.dial(destination, datagrams=datagrams, wake=self._origin.wake.native)
        # Of its own: a closed dialer's streams live on.
        return await opened(native, Origin(self._origin.loop, self._origin.wake), stream_class)

    async def swap(self, module: AnyModule, *, unsealed: bool = False) -> None:
        """Have another module make the connections from now on; open ones stay as they are.

        Takes a second, in which it is watched. On an error the old one goes on: those of `Server.swap`.
        """
        loaded = await load_module(module, unsealed=unsealed)
        await self._origin.loop.run_in_executor(None, self.swap_now, loaded)

    def swap_now(self, module: _native.Module) -> None:
        """`swap` of a module that is loaded, blocking. In any thread."""
        self._native.swap(module)

    def status(self) -> _native.Status:
        """How the module is doing, as `Server.status`."""
        return self._native.status()

    @property
    def is_closed(self) -> bool:
        """Whether it dials no more."""
        return self._native.closed

    def close(self) -> None:
        """Dial no more. What is open lives on, and the module as long. Again: no effect."""
        if self.updates is not None:
            self.updates.close()
        self._native.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " closed" if self.is_closed else ""
        return f"<{type(self).__name__} {self.name}{state}>"

    def _check(self, application: str | None) -> None:
        if self.applications is None:
            return
        if application is None:
            raise PermissionError(
                errno.EACCES, f"{self.name}: has rules for applications, and it is not known which one this is for"
            )
        if not self.applications.admits(application):
            raise PermissionError(errno.EACCES, f"{self.name}: is not for the application {application}")


_running: WeakSet[Dialer] = WeakSet()


# Called before that of connections, which ends the thread that they are on.
@atexit.register
def _close_all() -> None:
    """Modules must not outlive the interpreter's libraries."""
    for dialer in list(_running):
        dialer.close()

"""A running module that dials on request."""

import asyncio
import atexit
import errno
import functools
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self
from weakref import WeakSet

from mitmproxy_watm import _native
from mitmproxy_watm._logs import set_log_level
from mitmproxy_watm._native_options import AnyPath
from mitmproxy_watm._options import ModuleOptions
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
    pcap_size: int | None = None,
    pcap_files: int | None = None,
    key_log: AnyPath | None = None,
    fixed: bool = False,
    applications: Applications | None = None,
    updates: AnyUpdates | None = None,
    through: "Dialer | None" = None,
) -> "Dialer":
    """Run a module that dials, for any number of connections and flows of datagrams.

    The arguments include those of `open_connection`. A component has one instance for all dials.

    - `pcap_size`, `pcap_files`: as for `start_server`.
    - `fixed`: the module chooses the destination, which `allow` must admit.
    - `applications`: the applications that may dial; see `Applications.of_wireguard` for
      WireGuard's `AllowedApps`.
    - `updates`: the source of newer modules meanwhile, as for `start_server`.
    - `through`: the dialer by which the module reaches the network, so that modules form a chain. It
      must not be `fixed`, and its `dns` looks up the names that this module connects to.

    Raises `ValueError` for a configuration that the module refuses, `ModuleError` for a module that
    cannot run, and `OSError` for a socket or file that is not available.
    """
    loop = asyncio.get_running_loop()
    origin = Origin(loop, LoopWake.of(loop))
    options = ModuleOptions(
        config=config,
        allow=allow,
        keys=keys,
        limits=limits,
        name=name,
        unsealed=unsealed,
        udp=udp,
        dns=dns,
        pcap=pcap,
        pcap_size=pcap_size,
        pcap_files=pcap_files,
        key_log=key_log,
        fixed=fixed,
        applications=applications,
        updates=updates,
    )
    return await in_thread(functools.partial(make_dialer, origin, module, options, through))


def make_dialer(origin: Origin, module: AnyModule, options: ModuleOptions, through: "Dialer | None" = None) -> "Dialer":
    """Does the same as `start_dialer`, blocking. May run in any thread."""
    set_log_level()
    followed, loaded = read_with_updates(module, options.updates, origin.wake, unsealed=options.unsealed)
    try:
        made = options.dialing(loaded)
        carrier = None if through is None else through._native
        native = _native.Dialer(loaded, options=made, fixed=options.fixed, through=carrier)
    except BaseException:
        if followed is not None:
            followed.close()
        raise
    dialer = Dialer(native, origin, made["name"], options.fixed, options.applications)
    if followed is not None:
        followed.follow(native, loaded)
        dialer.updates = followed
    return dialer


class Dialer:
    """A running module that dials, and an asynchronous context manager. Belongs to one event loop."""

    updates: Updates | None = None
    """The source of newer modules, with its results; None without one."""

    def __init__(
        self, native: _native.Dialer, origin: Origin, name: str, fixed: bool, applications: Applications | None
    ) -> None:
        """Called by `start_dialer`."""
        self._native = native
        self._origin = origin
        self._fixed = fixed
        self.name = name
        self.applications = applications
        _running.add(self)

    async def open_connection(
        self, host: str | None = None, port: int | None = None, *, application: str | None = None
    ) -> Stream:
        """Connect to `host` and `port`, or to the module's destination if it is fixed.

        - `application`: the application that it is for, by name or path. If there are rules for
          applications, it is required and must be admitted: `PermissionError`.

        Errors are those of the function `open_connection`.
        """
        return await self.dial(host, port, False, Stream, application=application)

    async def open_datagrams(
        self, host: str | None = None, port: int | None = None, *, application: str | None = None
    ) -> Stream:
        """Carry datagrams to `host` and `port`; see the function `open_datagrams`."""
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
        """Does the same as `open_connection` or `open_datagrams`, with a class of the caller's."""
        self._check(application)
        destination = None
        if not self._fixed:
            if host is None or port is None:
                raise ValueError("host, port: required; the module does not choose the destination")
            check_port(port)
            destination = (host, port)
        native = self._native.dial(destination, datagrams=datagrams, wake=self._origin.wake.native)
        # An `Origin` of its own, since streams outlive a closed dialer.
        return await opened(native, Origin(self._origin.loop, self._origin.wake), stream_class)

    async def swap(self, module: AnyModule, *, unsealed: bool = False) -> None:
        """Use another module for future connections; open ones stay as they are.

        Watches the new module for a second. On an error the old one continues; errors are those of
        `Server.swap`.
        """
        loaded = await load_module(module, unsealed=unsealed)
        await self._origin.loop.run_in_executor(None, self.swap_now, loaded)

    def swap_now(self, module: _native.Module) -> None:
        """Does the same as `swap` with a loaded module, blocking. May run in any thread."""
        self._native.swap(module)

    def status(self) -> _native.Status:
        """Returns the status of the module, as `Server.status` does."""
        return self._native.status()

    @property
    def is_closed(self) -> bool:
        """True once it has stopped dialling."""
        return self._native.closed

    def close(self) -> None:
        """Stop dialing. Open connections stay open, and the module with them. Repeated calls have
        no effect."""
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
                errno.EACCES,
                f"{self.name}: has rules for applications, but the application of this connection is unknown",
            )
        if not self.applications.admits(application):
            raise PermissionError(errno.EACCES, f"{self.name}: not allowed for the application {application}")


_running: WeakSet[Dialer] = WeakSet()


# Called before the handler of connections, which ends the thread that they use.
@atexit.register
def _close_all() -> None:
    """Closes all modules, which must not outlive the interpreter's libraries."""
    for dialer in list(_running):
        dialer.close()

"""Connections through modules, and relays."""

import asyncio
import atexit
import datetime
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar
from weakref import WeakSet

from mitmproxy_watm import _native
from mitmproxy_watm._logs import set_log_level
from mitmproxy_watm._native_options import AnyPath
from mitmproxy_watm._options import ModuleOptions
from mitmproxy_watm._starting import at_first, in_thread
from mitmproxy_watm._wake import LoopWake
from mitmproxy_watm.limits import Limits
from mitmproxy_watm.modules import AnyModule, load_module, read_module
from mitmproxy_watm.server import resolve
from mitmproxy_watm.stream import Origin, Stream

EXIT_TIMEOUT = datetime.timedelta(seconds=1)
"""The time that the interpreter's exit waits for open connections and relays."""

AnyStream = TypeVar("AnyStream", bound=Stream)


async def open_connection(
    module: AnyModule,
    host: str,
    port: int,
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
) -> Stream:
    """Connect to `host` and `port` through a module. Returns after the module's handshake.

    - `module`: see `AnyModule`; a WATER module with the role of a dialer, or a component that
      dials.
    - `config`: in the module's own format; None means none, which differs from an empty one.
    - `allow`: destinations that the module may reach beyond this address, as patterns:
      "example.com:443", "*.example.com", "10.0.0.0/8:1-1024", "[2001:db8::1]:53", "*". None by
      default.
    - `keys`: private keys in PEM that the module signs with and does not see: files, by the names
      that its configuration uses for them (in "tls": `host-key`).
    - `name`: the name in errors and log records.
    - `unsealed`: for development, use a module that has no seal; see `load_module`.
    - `udp`: the UDP socket that a component is granted, as "address:port"; True means any port of
      this machine, False none, and None any if the module can use one, as WireGuard can.
    - `dns`: the resolver of names: servers, asked through the module, as "address" or
      "address:port", or `["host"]`, this machine. By default the module gets names; WireGuard
      cannot resolve them.
    - `pcap`, `key_log`: as for `start_server`, while the module runs.

    Cancelling the task gives up; a connection that was made is independent of it. All connections
    of the process share one native thread, except that a component has a thread of its own for each
    configuration. For many connections use a `Dialer`, see `start_dialer`.

    Raises `ConnectionRefusedError` or another `OSError` that names the address and the cause,
    `ConnectionAbortedError` if the module gave up, `TimeoutError` if it took too long,
    `ModuleError` for a module that cannot run, and `ValueError` for invalid options or a
    configuration that a component refuses.
    """
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
        key_log=key_log,
    )
    return await _dial(module, (host, port), options, datagrams=False)


async def open_datagrams(
    module: AnyModule,
    host: str,
    port: int,
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
) -> Stream:
    """Carry datagrams to `host` and `port` and the answers back, through a module.

    The arguments are those of `open_connection`. Each `write` of the stream sends one datagram, and
    each `read` returns one. The stream exists once the module has accepted it, which does not mean
    that anybody answers. Datagrams may be lost on the way. A module that carries streams alone,
    such as those of WATER, causes an `OSError` (EOPNOTSUPP).
    """
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
        key_log=key_log,
    )
    return await _dial(module, (host, port), options, datagrams=True)


async def open_fixed_connection(
    module: AnyModule,
    *,
    config: str | bytes | None = None,
    allow: Iterable[str] = (),
    limits: Limits = Limits(),
    name: str | None = None,
    unsealed: bool = False,
) -> Stream:
    """Connect through a module to a destination that the module chooses.

    The arguments are those of `open_connection`. A destination that `allow` does not admit is a
    `PermissionError`.
    """
    options = ModuleOptions(config=config, allow=allow, limits=limits, name=name, unsealed=unsealed)
    return await _dial(module, None, options, datagrams=False)


async def start_relay(
    module: AnyModule,
    host: str | None,
    port: int,
    upstream_host: str,
    upstream_port: int,
    *,
    config: str | bytes | None = None,
    allow: Iterable[str] = (),
    limits: Limits = Limits(),
    name: str | None = None,
    unsealed: bool = False,
) -> "Relay":
    """Accept connections on a port of this machine, which the module passes on upstream.

    `host` is an address or a name; "" or None means every address, IPv4 and IPv6. `port` 0 means
    any. The other arguments are those of `open_connection`. A failing connection does not affect
    others. Raises `OSError` for a port that is not available.
    """
    options = ModuleOptions(config=config, allow=allow, limits=limits, name=name, unsealed=unsealed)
    loop = asyncio.get_running_loop()
    set_log_level()
    check_port(port)
    check_port(upstream_port)
    addresses = await resolve(loop, host, port)
    wake = LoopWake.of(loop)

    def run() -> _native.Relay:
        loaded = read_module(module, unsealed=options.unsealed)
        return at_first(
            addresses,
            lambda address: _native.relay(
                loaded,
                address,
                port,
                (upstream_host, upstream_port),
                config=options.content,
                allow=list(options.allow),
                limits=options.limits,
                name=options.name or loaded.name,
                wake=wake.native,
            ),
        )

    native = await in_thread(run)
    return Relay(native, wake)


class Relay:
    """A running relay, and an asynchronous context manager. Closed when nothing refers to it."""

    def __init__(self, native: _native.Relay, wake: LoopWake) -> None:
        """Called by `start_relay`."""
        self._native = native
        self._wake = wake
        _relays.add(self)

    def getsockname(self) -> tuple[str, int]:
        """Returns the address of its socket, also after `close`."""
        return self._native.getsockname()

    def connections(self) -> int:
        """Returns the number of open connections."""
        return self._native.connections()

    def close(self) -> None:
        """Free the port and close every connection, soon. Repeated calls have no effect."""
        self._native.close()

    async def wait_closed(self) -> None:
        """Wait until that is done, after `close`."""
        while not self._native.closed():
            await self._wake.wait(self._native.closed_key)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        await self.wait_closed()

    def __repr__(self) -> str:
        host, port = self.getsockname()
        return f"<{type(self).__name__} on {host} port {port}>"


async def _dial(
    module: AnyModule, destination: tuple[str, int] | None, options: ModuleOptions, *, datagrams: bool
) -> Stream:
    set_log_level()
    loaded = await load_module(module, unsealed=options.unsealed)
    made = options.dialing(loaded)
    loop = asyncio.get_running_loop()
    if destination is not None:
        check_port(destination[1])
    wake = LoopWake.of(loop)
    native = _native.dial(loaded, destination, datagrams=datagrams, options=made, wake=wake.native)
    return await opened(native, Origin(loop, wake))


async def opened(native: _native.Dial, origin: Origin, stream_class: type[AnyStream] = Stream) -> AnyStream:  # type: ignore[assignment]
    """Returns the stream of a dial in progress. If cancelled, gives the dial up."""
    try:
        while (flow := native.result()) is None:
            await origin.wake.wait(native.key)
        return stream_class(flow, origin)
    finally:
        native.cancel()


def check_port(port: int) -> None:
    """Raises `OverflowError` if this is not a port."""
    if not 0 <= port <= 65535:
        raise OverflowError(f"port must be 0-65535, not {port}")


_relays: WeakSet[Relay] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Ends the native thread, which must not outlive the interpreter's libraries."""
    for relay in list(_relays):
        relay.close()
    _native.finish_connections(EXIT_TIMEOUT)

"""Runs a module on a port and starts a handler for each flow that comes through it."""

import asyncio
import atexit
import datetime
import inspect
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

from mitmproxy_watm import _native
from mitmproxy_watm._logs import set_log_level
from mitmproxy_watm._native_options import AnyPath
from mitmproxy_watm._options import ModuleOptions
from mitmproxy_watm._starting import at_first, in_thread
from mitmproxy_watm._wake import LoopWake
from mitmproxy_watm.limits import Limits
from mitmproxy_watm.modules import AnyModule, Transport, load_module, usual_transport
from mitmproxy_watm.stream import Origin, Stream
from mitmproxy_watm.updates import AnyUpdates, Updates, load_with_updates

logger = logging.getLogger(__name__)

ACCEPT_BATCH = 64
"""The most flows accepted before other work of the event loop gets its turn."""

ACCEPT_ROUND = 0.02
"""The time in seconds of one round of the event loop, above which fewer flows are accepted in each."""

EXIT_TIMEOUT = datetime.timedelta(seconds=1)
"""The time that the interpreter's exit waits for a running server."""

Handler = Callable[[Any], Awaitable[None] | None]
"""Called with each new flow. A coroutine that it returns runs as a task of its own."""

AnyServer = TypeVar("AnyServer", bound="Server")


async def start_server(
    module: AnyModule,
    host: str | None,
    port: int,
    *,
    config: str | bytes = b"",
    handle_tcp_stream: Callable[[Stream], Awaitable[None] | None] | None = None,
    handle_udp_stream: Callable[[Stream], Awaitable[None] | None] | None = None,
    transport: Transport | None = None,
    limits: Limits = Limits(),
    host_crypto: bool = True,
    keys: Mapping[str, AnyPath] = {},
    ipv6_only: bool = False,
    name: str | None = None,
    record: AnyPath | None = None,
    pcap: AnyPath | None = None,
    pcap_size: int | None = None,
    pcap_files: int | None = None,
    key_log: AnyPath | None = None,
    device: str | None = None,
    unsealed: bool = False,
    updates: AnyUpdates | None = None,
) -> "Server":
    """Run a module on a port of this machine.

    - `module`: the path of a `.wasm` file, its bytes, the result of `load_module`, or the name of a
      module of this package: "wireguard", "shadowsocks", "socks5", "proxy-protocol", "plain",
      "reverse", "tun". A WATER module needs the role of a listener.
    - `host`: an address or a name; "" or None means every address, IPv4 and IPv6. `port` 0 means
      any.
    - `config`: in the module's own format.
    - `handle_tcp_stream`, `handle_udp_stream`: called with a `Stream` for each TCP connection and
      each UDP flow (one pair of addresses). A flow without a handler is refused. An exception in a
      handler is logged and resets its flow, no other.
    - `transport`: the protocols that the module listens on. By default the module's own choice:
      UDP, or TCP for a module that cannot use UDP, such as a WATER module, or both for shadowsocks,
      socks5 and proxy-protocol, by these names, also of a file.
    - `host_crypto`: let the module use this machine's ciphers, which are faster than its own.
    - `keys`: private keys in PEM that the module signs with and does not see: files, by the names
      that its configuration uses for them (in "tls": `host-key`).
    - `ipv6_only`: with an IPv6 `host`, do not listen on IPv4.
    - `name`: the name of the server in log records.
    - `record`: write a recording of the module to this new file, for `watm replay`. It holds all
      payload and every key, is readable by its owner alone, and must not exist yet.
    - `pcap`: write the packets in the module's tunnels, decrypted, to this new file, in pcapng, an
      interface for each peer, up to 1 GiB. A file that stays empty is removed.
    - `pcap_size`, `pcap_files`: divide the packets among files of so many bytes (256 KiB or more),
      and keep the newest. One of them turns this on; the default of the other is 64 MiB or ten
      files. The names get numbers: `inner-0001.pcapng` for `inner.pcapng`.
    - `key_log`: append the keys of the module's tunnels to this file, as Wireshark reads them
      (`wg.keylog_file`). Anyone with the file can decrypt captured traffic, and has your private
      key. Both files are for their owner alone, are announced in a warning and in
      `status().captures`, and need a module that has `capture`, by its seal and its grant:
      "wireguard".
    - `device`: the name of a TUN device, whose packets a module such as "tun" gets in place of a
      socket. Linux only.
    - `unsealed`: for development, run a module that has no seal; see `load_module`.
    - `updates`: the source of newer modules while the server runs: a path, a URL, or an
      `UpdateSource`. The newest that ran well is kept, and serves in place of `module` from the
      next start on. `server.updates` has the results.

    Raises `ValueError` for a configuration that the module refuses or a `transport` that it does
    not support, `ModuleError` for a module that cannot run, and `OSError` for a port that is not
    available.
    """
    options = ModuleOptions(
        config=config,
        transport=transport,
        limits=limits,
        host_crypto=host_crypto,
        keys=keys,
        ipv6_only=ipv6_only,
        name=name,
        record=record,
        pcap=pcap,
        pcap_size=pcap_size,
        pcap_files=pcap_files,
        key_log=key_log,
        device=device,
        unsealed=unsealed,
        updates=updates,
    )
    return await start(Server, Stream, module, host, port, options, handle_tcp_stream, handle_udp_stream)


async def start(
    server_class: type[AnyServer],
    stream_class: type[Stream],
    module: AnyModule,
    host: str | None,
    port: int,
    options: ModuleOptions,
    handle_tcp_stream: Handler | None,
    handle_udp_stream: Handler | None,
    followed: Updates | None = None,
) -> AnyServer:
    """Does the same as `start_server`, with classes of the caller's.

    `followed` is the source of newer modules if `module` comes from `load_with_updates`.
    """
    loop = asyncio.get_running_loop()
    set_log_level()
    if not 0 <= port <= 65535:
        raise OverflowError(f"port must be 0-65535, not {port}")
    addresses = await resolve(loop, host, port)
    wake = LoopWake.of(loop)
    if followed is None:
        followed, loaded = await load_with_updates(module, options.updates, unsealed=options.unsealed)
    else:
        loaded = await load_module(module, unsealed=options.unsealed)

    def run(address: str) -> _native.Server:
        return _native.start(
            loaded,
            options.content or b"",
            address,
            port,
            wake=wake.native,
            transport=options.transport or usual_transport(loaded),
            name=options.name or loaded.name,
            ipv6_only=options.ipv6_only,
            host_crypto=options.host_crypto,
            keys=list(options.keys.items()),
            limits=options.limits,
            record=options.record,
            pcap=options.pcap,
            pcap_size=options.pcap_size,
            pcap_files=options.pcap_files,
            key_log=options.key_log,
            device=options.device,
        )

    native = await in_thread(lambda: at_first(addresses, run), followed)
    server = server_class(native, Origin(loop, wake), handle_tcp_stream, handle_udp_stream, stream_class)
    if followed is not None:
        followed.follow(native, loaded)
        server.updates = followed
    return server


class Server:
    """A running module. Shaped like `asyncio.Server`; also an asynchronous context manager."""

    updates: Updates | None = None
    """The source of newer modules, with its results; None without one."""

    def __init__(
        self,
        native: _native.Server,
        origin: Origin,
        handle_tcp_stream: Handler | None,
        handle_udp_stream: Handler | None,
        stream_class: type[Stream],
    ) -> None:
        """Called by `start_server`."""
        self._native = native
        self._origin = origin
        self._handlers = {False: handle_tcp_stream, True: handle_udp_stream}
        self._stream_class = stream_class
        self._tasks: set[asyncio.Future[None]] = set()
        self._batch = ACCEPT_BATCH
        _running.add(self)
        origin.wake.callbacks[native.accept_key] = self._accept
        self._accept()

    def getsockname(self) -> tuple[str, int]:
        """Returns the address of its socket, also after `close`."""
        return self._native.getsockname()

    @property
    def sockets(self) -> tuple[Self, ...]:
        """Objects with `getsockname`, as in `asyncio.Server`; none once it is closed."""
        return () if self._origin.closed else (self,)

    def is_serving(self) -> bool:
        """Returns True while it accepts flows."""
        return not self._origin.closed

    def close(self) -> None:
        """Reset every flow and free the port, soon. Repeated calls have no effect.

        Handlers keep running, and their reads end.
        """
        if self._origin.closed:
            return
        self._origin.closed = True
        if self.updates is not None:
            self.updates.close()
        self._origin.wake.callbacks.pop(self._native.accept_key, None)
        self._native.close()

    async def wait_closed(self) -> None:
        """Wait until the port is free, after `close`."""
        while not self._native.closed():
            await self._origin.wake.wait(self._native.closed_key)
        _running.discard(self)

    def stats(self) -> dict[str, int]:
        """Returns the module's counters, and the host's, whose names begin with "host."."""
        return dict(self._native.status().counters)

    def status(self) -> _native.Status:
        """Returns peers, flows, counters, and the state of the module."""
        return self._native.status()

    def client_configs(self, host: str | None = None, port: int | None = None) -> list[_native.ClientConfig]:
        """Returns the configurations that clients need to connect to `host` and `port`. They
        contain secrets.

        By default the address is the socket's, or, if that is every address, the source address of
        this machine's traffic to others.
        """
        own_host, own_port = self.getsockname()
        if host is None:
            host = _outward_address() if ipaddress.ip_address(own_host).is_unspecified else own_host
        return self._native.client_configs(host, own_port if port is None else port)

    async def swap(
        self,
        module: AnyModule,
        *,
        config: str | bytes | None = None,
        keys: Mapping[str, AnyPath] | None = None,
        drain: float | None = None,
        probation: float = 1.0,
        unsealed: bool = False,
    ) -> int:
        """Replace the module that serves, while traffic flows.

        New flows use the new module at once. Open ones stay with the old one until they end, and
        are neither reset nor stopped; with `drain`, they are reset after so many seconds.

        - `module`, `unsealed`: as for `start_server`.
        - `config`, `keys`: for the new module; by default those in force.
        - `probation`: seconds that the new module is watched. If it fails in this time, the old one
          serves again. The call takes as long.

        Returns the number of the new generation, see `status().generations`. After an error the old
        module continues: `ModuleError` for a module that cannot run or fails, or that is of another
        kind; `ValueError` for a configuration that it refuses; `OSError` for a file that cannot be
        read, and while another swap is in progress (EBUSY).
        """
        loaded = await load_module(module, unsealed=unsealed)

        def run() -> int:
            return self.swap_now(loaded, config=config, keys=keys, drain=drain, probation=probation)

        return await self._origin.loop.run_in_executor(None, run)

    def swap_now(
        self,
        module: _native.Module,
        *,
        config: str | bytes | None = None,
        keys: Mapping[str, AnyPath] | None = None,
        drain: float | None = None,
        probation: float = 1.0,
    ) -> int:
        """Does the same as `swap` with a loaded module, blocking. May run in any thread."""
        return self._native.swap(
            module,
            config=config.encode() if isinstance(config, str) else config,
            keys=None if keys is None else list(keys.items()),
            drain=None if drain is None else datetime.timedelta(seconds=drain),
            probation=datetime.timedelta(seconds=probation),
        )

    async def reconfigure(self, config: str | bytes) -> None:
        """Replace the configuration. On a `ValueError` the old one stays in force."""
        await self._origin.loop.run_in_executor(None, self.reconfigure_now, config)

    def reconfigure_now(self, config: str | bytes) -> None:
        """Does the same as `reconfigure`, blocking. May run in any thread."""
        self._native.reconfigure(config.encode() if isinstance(config, str) else bytes(config))

    async def start_capture(
        self, pcap: AnyPath, *, pcap_size: int | None = None, pcap_files: int | None = None
    ) -> None:
        """Begin to write the packets in the module's tunnels to a new file, as `start_server` does.

        Raises `ValueError` while another capture is written and for a file that exists, `OSError`
        for one that cannot be made, and `ModuleError` for a module that cannot begin a capture.
        """

        def run() -> None:
            self.start_capture_now(pcap, pcap_size=pcap_size, pcap_files=pcap_files)

        await self._origin.loop.run_in_executor(None, run)

    def start_capture_now(
        self, pcap: AnyPath, *, pcap_size: int | None = None, pcap_files: int | None = None
    ) -> None:
        """Does the same as `start_capture`, blocking. May run in any thread."""
        self._native.start_capture(pcap, pcap_size=pcap_size, pcap_files=pcap_files)

    async def stop_capture(self) -> None:
        """End the capture, if there is one. Its files are complete then."""
        await self._origin.loop.run_in_executor(None, self.stop_capture_now)

    def stop_capture_now(self) -> None:
        """Does the same as `stop_capture`, blocking. May run in any thread."""
        self._native.stop_capture()

    def add_tls_secret(self, lines: str) -> None:
        """Add lines of an NSS key log to the capture, if there is one, so that its readers decrypt the packets after them.

        Call it from a handler's TLS library, before the packets that the keys encrypt are sent.
        """
        self._native.tls_secret(lines)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        await self.wait_closed()

    def __repr__(self) -> str:
        host, port = self.getsockname()
        state = " closed" if self._origin.closed else ""
        return f"<{type(self).__name__} on {host} port {port}{state}>"

    def _accept(self) -> None:
        if self._origin.closed:
            return
        flows = self._native.accept(self._batch)
        if len(flows) == self._batch:
            self._origin.loop.call_soon(self._accept_more, self._origin.loop.time())
        for flow in flows:
            self._handle(flow)

    def _accept_more(self, before: float) -> None:
        """Continue after one round of the loop. Handlers take most of it, and their number follows the batch."""
        if self._origin.loop.time() - before > ACCEPT_ROUND:
            self._batch = max(1, self._batch // 2)
        else:
            self._batch = min(ACCEPT_BATCH, self._batch * 2)
        self._accept()

    def _handle(self, flow: _native.Flow) -> None:
        handler = self._handlers[flow.datagrams]
        if handler is None:
            flow.abort()
            return
        stream = self._stream_class(flow, self._origin)
        try:
            result = handler(stream)
            if not inspect.isawaitable(result):
                return
            task = asyncio.ensure_future(result, loop=self._origin.loop)
        except Exception:
            logger.exception("a handler failed: %r", stream)
            stream.abort()
            return
        self._tasks.add(task)

        def done(task: asyncio.Future[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                stream.close()
            elif error := task.exception():
                logger.error("a handler failed: %r", stream, exc_info=error)
                stream.abort()

        task.add_done_callback(done)


_running: WeakSet[Server] = WeakSet()
"""Servers whose driver thread may be alive."""


@atexit.register
def _close_all() -> None:
    """Ends driver threads, which must not outlive the interpreter's libraries."""
    for server in list(_running):
        server._native.finish(EXIT_TIMEOUT)


async def resolve(loop: asyncio.AbstractEventLoop, host: str | None, port: int) -> list[str]:
    """Returns addresses to try in this order, the next one if this machine lacks the family."""
    if not host:
        return ["::", "0.0.0.0"]
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        return [str(info[4][0]) for info in found]


def _outward_address() -> str:
    """Returns the source address of this machine's traffic to others. Sends nothing."""
    for family, somewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((somewhere, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"

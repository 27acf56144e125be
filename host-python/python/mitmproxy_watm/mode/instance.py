"""A running server of the mode."""

import asyncio
import errno
import logging
import os
import sys
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from mitmproxy import ctx
from mitmproxy.connection import Address
from mitmproxy.net import local_ip
from mitmproxy.proxy import layers
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import Layer
from mitmproxy.proxy.mode_servers import ServerInstance
from mitmproxy.proxy.mode_specs import ReverseMode

from mitmproxy_watm import wireguard
from mitmproxy_watm._errors import swap_failure, worded
from mitmproxy_watm._native import ClientConfig, Module
from mitmproxy_watm.about import About, about_loaded
from mitmproxy_watm.history import History
from mitmproxy_watm.mode import tls_secrets
from mitmproxy_watm.mode.capture import PageCapture
from mitmproxy_watm.mode.config import build_config
from mitmproxy_watm.mode.mode import WatmMode
from mitmproxy_watm.mode.network import network_of, with_network
from mitmproxy_watm.mode.peers import remember
from mitmproxy_watm.mode.process import Sockets, remember_process
from mitmproxy_watm.mode.program import Program, enter
from mitmproxy_watm.mode.qr import TOO_LONG, qr_text
from mitmproxy_watm.mode.spec import PREFIX
from mitmproxy_watm.mode.waiting import THREADS
from mitmproxy_watm.mode.watch import Mark, changes, mark
from mitmproxy_watm.modules import AnyModule, names_no_destination, read_module, usual_transport
from mitmproxy_watm.server import Server, start
from mitmproxy_watm.updates import load_with_updates

logger = logging.getLogger(__name__)

STOP_TIMEOUT = 5
"""The time limit in seconds for a port to become free."""

RULE = "-" * 60

NEEDS_DEVICE = "mitmdump-watm exec -- PROGRAM"


class FlowStream(wireguard.Stream):
    """A stream in the form that mitmproxy's core expects."""

    destination: Address | None = None
    """The destination, if the stream names none."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Returns a fact, also under the name by which the core asks for a destination."""
        if name == "remote_endpoint" and self.destination is not None:
            return self.destination
        return super().get_extra_info(name, default)

    async def read(self, n: int = -1) -> bytes:
        """Reads as usual, but skips empty datagrams, which the core takes for the end."""
        while True:
            data = await super().read(n)
            if data or self.at_eof():
                return data


class WatmInstance(ServerInstance[WatmMode]):
    """One requested `watm:` mode, and its server while it runs."""

    server: Server | None = None
    module: Module | None = None
    """The module of the server."""
    history: History
    """The server's past."""
    _arriving: FlowStream | None = None
    swap_error: str | None = None
    """The reason why the last swap failed."""
    _config: bytes
    """The configuration of its module."""
    _complained = False
    _sockets: Sockets | None = None
    """The sockets of the network that its device belongs to."""
    page_capture: PageCapture
    """The capture of the page."""
    _watching: asyncio.Future[None] | None = None

    @property
    def is_running(self) -> bool:
        """True while it has a server."""
        return self.server is not None

    @property
    def listen_addrs(self) -> tuple[Address, ...]:
        """The address of its socket. A device has none."""
        if self.server is None or self.mode.takes_packets:
            return ()
        return (self.server.getsockname(),)

    def make_top_layer(self, context: Context) -> Layer:
        """Returns the layer of mitmproxy's own WireGuard mode, or that of its reverse mode."""
        stream, self._arriving = self._arriving, None
        if stream is not None:
            remember(context.client, stream)
            if self._sockets is not None:
                remember_process(context.client, self._sockets.owner(*_ends(stream)))
        destination = self.mode.parsed.destination
        if destination is not None and destination.reverse is not None:
            context.client.proxy_mode = ReverseMode.parse(destination.reverse)
            return layers.modes.ReverseProxy(context)
        return layers.modes.TransparentProxy(context)

    def client_configs(self) -> list[ClientConfig]:
        """Returns the configurations of its clients, for the address at which this machine is reached."""
        if self.server is None or self.mode.parsed.destination is not None:
            return []
        host = self.mode.listen_host(ctx.options.listen_host)
        if host in ("", "0.0.0.0", "::"):
            host = local_ip.get_local_ip() or local_ip.get_local_ip6() or "127.0.0.1"
        try:
            return self.server.client_configs(host)
        except OSError as e:
            if e.errno != errno.EOPNOTSUPP:
                raise
            # The module has no configurations for clients.
            return []

    def to_json(self) -> dict[str, object]:
        """Returns its state for mitmweb, in the form of a WireGuard server's."""
        configs = self.client_configs()
        return {"wireguard_conf": configs[0].content if configs else None, **super().to_json()}

    async def _start(self) -> None:
        try:
            await self._run()
        except (OSError, ValueError) as e:
            # mitmproxy logs and shows the message unchanged.
            raise worded(e) from e

    async def _run(self) -> None:
        assert self.server is None
        data = self.mode.parsed
        host = self.mode.listen_host(ctx.options.listen_host)
        port = self.mode.listen_port(ctx.options.listen_port)
        config = build_config(data, Path(ctx.options.confdir).expanduser())
        path = Path(data.module).expanduser()
        known = mark(path)
        options = replace(data.options, config=config, name=self.mode.full_spec, unsealed=ctx.options.watm_unsealed)
        followed, module = await load_with_updates(data.module, options.updates, unsealed=options.unsealed)
        self.module = module
        if data.destination is None and names_no_destination(module):
            raise ValueError(self._complaint())
        self.history = History()
        self.page_capture = PageCapture()
        transport = options.transport or usual_transport(module)
        self.mode.set_transport(transport)
        program = None
        if transport == "packets" and options.device is None:
            if data.namespace is None:
                program = Program.to_run()
                if program is None:
                    raise ValueError(f"option device: missing; name a device, or run a program: {NEEDS_DEVICE}")
                device = await program.launch(Path(ctx.options.confdir).expanduser(), data.fields)
            else:
                device = enter(data.namespace, data.fields)
            options = replace(options, device=device)
            self._sockets = Sockets.of_device(device, data.namespace)
        elif transport == "packets":
            self._sockets = Sockets.of_this_machine()
        try:
            self.server = await start(
                Server,
                FlowStream,
                module,
                host,
                port or 0,
                replace(options, transport=transport),
                self._handle,
                self._handle,
                followed,
            )
        except OSError as e:
            if e.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
                raise
            message = f"{self.mode.description} failed to listen on {host or '*'}:{port}: {os.strerror(e.errno)}"
            if e.errno == errno.EADDRINUSE and self.mode.custom_listen_port is None:
                message += f"\nTry specifying a different port by using `--mode {self.mode.full_spec}@{(port or 0) + 2}`."
            raise worded(e, message) from e
        self._config = config
        self.observe()
        if data.watch:
            self._watching = asyncio.ensure_future(self._follow(path, known))
        for client in self.client_configs():
            logger.info("%s", _announcement(client))
        if program is not None:
            program.begin()

    async def swap(self, module: AnyModule, *, name: str | None = None) -> bool:
        """Replace the module that serves. A failure is logged and kept.

        With `name`, a sealed module must have this name.
        """
        if self.server is None:
            return False
        return await self.finish_swap(self.begin_swap(module, name=name))

    def begin_swap(self, module: AnyModule, *, name: str | None = None) -> Future[tuple[Module, int]]:
        """Start a swap in a thread, which fails with OSError or ValueError. `finish_swap` must follow."""
        assert self.server is not None  # the caller has looked
        self.observe()
        server, unsealed = self.server, ctx.options.watm_unsealed

        def run() -> tuple[Module, int]:
            loaded = read_module(module, unsealed=unsealed)
            if name is not None and loaded.seal is not None and loaded.seal.name != name:
                raise ValueError(f"its name is {loaded.seal.name}; must be {name}, the name of the previous module")
            return loaded, server.swap_now(loaded)

        return THREADS.submit(run)

    def begin_capture(self, file: Path) -> Future[None]:
        """Start a capture in a thread, which fails with OSError or ValueError."""
        assert self.server is not None  # the caller has looked
        return THREADS.submit(self.server.start_capture_now, file)

    def end_capture(self) -> Future[None]:
        """Stop the capture in a thread, which fails with OSError."""
        assert self.server is not None  # the caller has looked
        return THREADS.submit(self.server.stop_capture_now)

    @property
    def _about(self) -> About | None:
        return None if self.module is None else about_loaded(self.module)

    @property
    def network(self) -> str | None:
        """The words of the bad network between a module that runs and its peers; None if it has no place for one."""
        return network_of(self._config, self._about)

    def change_network(self, words: str) -> Future[None]:
        """Put a bad network between the module and its peers, in a thread, which fails with OSError or ValueError."""
        assert self.server is not None  # the caller has looked
        server = self.server

        def run() -> None:
            config = with_network(self._config, self._about, words)
            server.reconfigure_now(config)
            self._config = config

        return THREADS.submit(run)

    def serving(self) -> int | None:
        """Returns the number of the generation that serves."""
        known = [] if self.server is None else self.server.status().generations
        return max((generation.number for generation in known), default=None)

    async def finish_swap(self, swapping: Future[tuple[Module, int]]) -> bool:
        """Log and keep the result of a swap. Returns True if it was done."""
        try:
            loaded, generation = await asyncio.wrap_future(swapping)
        except (OSError, ValueError) as e:
            self.swap_error = swap_failure(e, self.history.current)
            logger.error("%s: %s", self.mode.full_spec, self.swap_error)
            return False
        self.module, self.swap_error = loaded, None
        self.observe()
        logger.info("%s: now running %s as generation %d", self.mode.full_spec, loaded.name, generation)
        return True

    def observe(self, *, sample: bool = False) -> None:
        """Note what runs, and with `sample` also the traffic. Raises OSError."""
        if self.server is not None:
            status = self.server.status()
            self.history.observe(status, status.module or self.module)
            if sample:
                self.history.sample(status)

    async def _follow(self, path: Path, known: Mark) -> None:
        """Swap the module whenever its file changes, if the name stays the same."""
        seal = self.module.seal if self.module is not None else None
        async for _ in changes(path, known):
            await self.swap(path, name=None if seal is None else seal.name)

    async def _stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        assert self.server is not None
        stopping, self.server = self.server, None
        stopping.close()
        await asyncio.wait_for(stopping.wait_closed(), STOP_TIMEOUT)

    def end(self) -> None:
        """Reset every flow, and accept no more, when mitmproxy ends. The program of `exec` ends with it."""
        if self.mode.takes_packets and Program.only is not None:
            Program.only.kill()
        if self.server is not None:
            self.server.close()

    async def _handle(self, stream: FlowStream) -> None:
        if self.mode.parsed.destination is not None:
            stream.destination = self.mode.parsed.destination.address
        elif self.mode.transport_protocol == "tcp" and _says_not_where(stream):
            if not self._complained:
                self._complained = True
                logger.error("%s", self._complaint())
            stream.abort()
            return
        tls_secrets.belong_to(self.server)
        # The core makes the top layer before it first waits, so this is its stream.
        self._arriving = stream
        await self.handle_stream(stream, stream)  # type: ignore[arg-type]

    def _complaint(self) -> str:
        return (
            f"{self.mode.full_spec}: connections through this module have no destination; "
            f"add the option to: {PREFIX}{self.mode.parsed.module}?to=example.com:443"
        )


def _says_not_where(stream: FlowStream) -> bool:
    """Returns True if the destination is the listener's own address, which modules report if they
    know none."""
    return bool(stream.get_extra_info("sockname") == stream.get_extra_info("original_dst"))


def _ends(stream: FlowStream) -> tuple[str, tuple[str, int], tuple[str, int]]:
    """Returns the protocol, the source and the destination of a flow."""
    source, destination = stream.get_extra_info("peername"), stream.get_extra_info("sockname")
    return stream.get_extra_info("transport_protocol"), source[:2], destination[:2]


def _announcement(client: ClientConfig) -> str:
    lines = [RULE, _printable(client.content.strip()), RULE]
    if _shows_blocks():
        lines += [qr_text(client.content) or TOO_LONG, RULE]
    return "\n".join(lines)


def _printable(text: str) -> str:
    """Replaces characters that a terminal would interpret, since a module wrote the text."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _shows_blocks() -> bool:
    """Returns True if people see the output, in an encoding with the blocks of a QR code."""
    try:
        "█▀▄".encode(sys.stdout.encoding)
    except (AttributeError, TypeError, UnicodeEncodeError):
        return False
    return sys.stdout.isatty()

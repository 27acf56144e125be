"""A requested upstream, and its module while it runs."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from mitmproxy import ctx
from mitmproxy.connection import Server

from mitmproxy_watm._errors import plain, swap_failure
from mitmproxy_watm._native import Module
from mitmproxy_watm._options import ModuleOptions
from mitmproxy_watm._wake import LoopWake
from mitmproxy_watm.dialer import Dialer, make_dialer
from mitmproxy_watm.history import History
from mitmproxy_watm.mode.waiting import THREADS
from mitmproxy_watm.mode.watch import Mark, changes, mark
from mitmproxy_watm.modules import AnyModule, read_module
from mitmproxy_watm.stream import Origin, Stream
from mitmproxy_watm.upstream.config import read_options
from mitmproxy_watm.upstream.errors import through
from mitmproxy_watm.upstream.spec import Spec
from mitmproxy_watm.upstream.stream import UpstreamStream

logger = logging.getLogger(__name__)

DNS_TIMEOUT = 5
"""The time limit in seconds for a DNS server, that of a stub resolver."""

TRUNCATED = 2
"""The truncation bit, in the third byte of a DNS answer (RFC 1035 section 4.1.1)."""


class Upstream:
    """An upstream, which starts its module at once. Connections wait for the start."""

    def __init__(self, spec: Spec, through: "Upstream | None") -> None:
        """Must run within an event loop. `through` is the upstream by which the module reaches the network."""
        self.spec = spec
        self.through = through
        self.dialer: Dialer | None = None
        self.options: ModuleOptions | None = None
        self.error: str | None = None
        """The reason why it does not run."""
        self.swap_error: str | None = None
        """The reason why the last swap failed."""
        self.history = History()
        """Its past."""
        self.on_failure: Callable[[], None] | None = None
        """Called if it does not start."""
        self._watching: asyncio.Future[None] | None = None
        path = Path(spec.module).expanduser()
        known = mark(path)
        loop = asyncio.get_running_loop()
        origin = Origin(loop, LoopWake.of(loop))
        self.opening = THREADS.submit(self._open, origin, ctx.options.watm_unsealed)
        """The start in a thread. It fails with OSError or ValueError."""
        self._starting = asyncio.ensure_future(self._start(path, known))

    def is_for(self, spec: Spec, through: "Upstream | None") -> bool:
        """Returns True if it is this one, and has not failed."""
        return self.spec == spec and self.through is through and self.error is None

    async def ready(self) -> None:
        """Wait until it runs or has failed; `error` has the reason."""
        await asyncio.wait([self._starting])

    def passes(self, application: str | None) -> bool:
        """Returns True if an application may use it. An unknown application must not bypass it."""
        rules = None if self.options is None else self.options.applications
        return rules is None or application is None or rules.admits(application)

    async def open(self, server: Server, transport: str, host: str, port: int, application: str | None) -> Stream:
        """Connect on behalf of mitmproxy. Every error is an `OSError` with the upstream's name."""
        await self.ready()
        name = self.spec.name
        if self.dialer is None:
            raise OSError(f"failed through {name}: {self.error or 'it was unloaded'}")
        if self.spec.to is not None:
            host, port = self.spec.to
        try:
            stream = await self.dialer.dial(host, port, transport == "udp", UpstreamStream, application=application)
        except (OSError, ValueError) as e:
            raise through(name, e) from e
        stream.server, stream.name = server, name
        return stream

    @property
    def resolver(self) -> tuple[str, int] | None:
        """A DNS server behind it."""
        dns = None if self.options is None else self.options.dns
        if not dns or tuple(dns) == ("host",):
            return None
        host, colon, port = dns[0].rpartition(":")
        if colon and port.isdigit() and (host.startswith("[") or ":" not in host):
            return host.removeprefix("[").removesuffix("]"), int(port)
        return dns[0], 53

    async def ask(self, query: bytes, application: str | None) -> bytes:
        """Returns the DNS server's answer to a query. Raises OSError."""
        await self.ready()
        assert self.resolver is not None  # the caller has looked
        if self.dialer is None:
            raise OSError(f"failed through {self.spec.name}: {self.error or 'it was unloaded'}")
        try:
            async with asyncio.timeout(DNS_TIMEOUT):
                return await ask(self.dialer, *self.resolver, query, application)
        except (OSError, ValueError, EOFError) as e:
            raise through(self.spec.name, e) from e

    async def swap(self, module: AnyModule) -> bool:
        """Use another module for future connections. A failure is logged and kept."""
        if self.dialer is None:
            return False
        return await self.finish_swap(self.begin_swap(module))

    def begin_swap(self, module: AnyModule) -> Future[Module]:
        """Start a swap in a thread, which fails with OSError or ValueError. `finish_swap` must follow."""
        assert self.dialer is not None  # the caller has looked
        self.observe()
        dialer, unsealed = self.dialer, ctx.options.watm_unsealed

        def run() -> Module:
            loaded = read_module(module, unsealed=unsealed)
            dialer.swap_now(loaded)
            return loaded

        return THREADS.submit(run)

    def serving(self) -> int | None:
        """Returns the number of the generation that makes the connections, if the module has any."""
        known = [] if self.dialer is None else self.dialer.status().generations
        return max((generation.number for generation in known), default=None)

    async def finish_swap(self, swapping: Future[Module]) -> bool:
        """Log and keep the result of a swap. Returns True if it was done."""
        try:
            loaded = await asyncio.wrap_future(swapping)
        except (OSError, ValueError) as e:
            self.swap_error = swap_failure(e, self.history.current)
            logger.error("%s: %s", self.spec.name, self.swap_error)
            return False
        self.swap_error = None
        self.observe()
        logger.info("%s: now running %s for new connections", self.spec.name, loaded.name)
        return True

    def observe(self, *, sample: bool = False) -> None:
        """Note what runs, and with `sample` also the traffic. Raises OSError."""
        if self.dialer is not None:
            status = self.dialer.status()
            self.history.observe(status, status.module)
            if sample:
                self.history.sample(status)

    def close(self) -> None:
        """Stop connecting; open connections stay open."""
        self._starting.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if self.dialer is not None:
            self.dialer.close()
            self.dialer = None
        # The dialer may exist only later.
        self.opening.add_done_callback(_close_opened)

    def _open(self, origin: Origin, unsealed: bool) -> tuple[ModuleOptions, Dialer]:
        """Starts the module, in a thread."""
        options = replace(read_options(self.spec), unsealed=unsealed)
        return options, make_dialer(origin, self.spec.module, options, self._carrier())

    def _carrier(self) -> Dialer | None:
        """Returns the dialer of the other upstream. That one has been submitted before, so that it has its thread."""
        if self.through is None:
            return None
        try:
            return self.through.opening.result()[1]
        except (OSError, ValueError) as e:
            raise OSError(f"{self.through.spec.name}, which it goes through, does not run: {plain(e)}") from e

    async def _start(self, path: Path, known: Mark) -> None:
        try:
            opened = await asyncio.wrap_future(self.opening)
        except (OSError, ValueError) as e:
            self.error = plain(e)
            logger.error("The upstream %s does not run: %s", self.spec.name, self.error)
            if self.on_failure is not None:
                self.on_failure()
            return
        self.options, self.dialer = opened
        self.observe()
        if self.spec.watch:
            self._watching = asyncio.ensure_future(self._follow(path, known))
        logger.info("The upstream %s runs %s.", self.spec.name, self.spec.module)

    async def _follow(self, path: Path, known: Mark) -> None:
        """Swap the module whenever its file changes."""
        async for _ in changes(path, known):
            await self.swap(path)


def _close_opened(opening: Future[tuple[ModuleOptions, Dialer]]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[1].close()


async def ask(dialer: Dialer, host: str, port: int, query: bytes, application: str | None) -> bytes:
    """Returns a DNS server's whole answer to a query (RFC 7766). `EOFError` if it ends early."""
    datagrams = await dialer.open_datagrams(host, port, application=application)
    try:
        datagrams.write(query)
        while (answer := await datagrams.read()) and answer[:2] != query[:2]:
            pass
    finally:
        datagrams.close()
    if len(answer) < 3 or not answer[2] & TRUNCATED:
        return answer
    stream = await dialer.open_connection(host, port, application=application)
    try:
        stream.write(len(query).to_bytes(2, "big") + query)
        return await stream.readexactly(int.from_bytes(await stream.readexactly(2), "big"))
    finally:
        stream.close()

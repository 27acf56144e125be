"""The addon: an option, commands, the page in mitmweb, and the peer in each flow."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import mitmproxy.types
from mitmproxy import command, ctx, exceptions, optmanager
from mitmproxy.addonmanager import Loader
from mitmproxy.connection import Client
from mitmproxy.dns import DNSFlow
from mitmproxy.flow import Flow
from mitmproxy.http import HTTPFlow
from mitmproxy.tcp import TCPFlow
from mitmproxy.udp import UDPFlow

from mitmproxy_watm.mode import ending, page, tls_secrets
from mitmproxy_watm.mode.config import build_config
from mitmproxy_watm.mode.instance import WatmInstance
from mitmproxy_watm.mode.mode import WatmMode
from mitmproxy_watm.mode.peers import annotate
from mitmproxy_watm.mode.process import annotate_process
from mitmproxy_watm.mode.report import report
from mitmproxy_watm.mode.spec import PREFIX, complete
from mitmproxy_watm.mode.start import Start
from mitmproxy_watm.mode.status import describe, instances
from mitmproxy_watm.mode.waiting import THREADS, wait
from mitmproxy_watm.modules import AnyModule, read_module
from mitmproxy_watm.updates import Updates
from mitmproxy_watm.upstream.addon import Upstreams
from mitmproxy_watm.upstream.status import describe as describe_upstream

logger = logging.getLogger(__name__)


class Watm:
    """Adds the `watm:` modes to a mitmproxy. Loading it again is harmless."""

    def __init__(self) -> None:
        self._late = False
        self._ours: list[str] = []
        self._work: set[asyncio.Future[object]] = set()
        self._start = Start()
        self.upstreams = Upstreams()
        # An addon of this addon, in mitmproxy's terms.
        self.addons = [self.upstreams]

    # Hooks of mitmproxy.

    def load(self, loader: Loader) -> None:
        """Add the options."""
        proxyserver = _proxyserver()
        self._late = proxyserver is not None and proxyserver.is_running
        tls_secrets.install()
        ending.install()
        loader.add_option(
            "watm",
            Sequence[str],
            [],
            "Run a transport module as a server: wireguard or PATH.wasm, options as ?name=value&..., "
            "where to listen as @[host:]port. In addition to what mode says, or in place of its default. "
            "mitmweb shows its clients, QR codes and peers at /watm.",
        )
        loader.add_option(
            "watm_unsealed",
            bool,
            False,
            "For development: also run transport modules without a seal. Others need a seal under a root trusted with "
            "`watm trust`.",
        )

    def configure(self, updated: set[str]) -> None:
        """Keep the modes in step with the option."""
        if "watm" not in updated:
            return
        wanted = [complete(spec) for spec in ctx.options.watm]
        kept = [mode for mode in _modes() if mode not in self._ours]
        modes = kept + [spec for spec in wanted if spec not in kept]
        self._ours = wanted
        if modes != ctx.options.mode and (wanted or kept):
            ctx.options.update(mode=modes)

    def running(self) -> Awaitable[bool] | None:
        """Start the servers that were requested after mitmproxy started its own."""
        page.install()
        # A script that is loaded later is called without a wait, and needs none: by then mitmproxy
        # itself follows the option.
        if self._late:
            self._start.end()
            return None
        self._start.end_after_other_addons()
        servers: Awaitable[bool] = _proxyserver().setup_servers()
        return servers

    async def client_connected(self, client: Client) -> None:
        """Hold the connection back until all addons run."""
        await self._start.wait()

    def done(self) -> None:
        """Stop all modules when mitmproxy ends, which flows from them would delay without end."""
        # Without its addon a mode goes on.
        if ctx.master.should_exit.is_set():
            for instance in instances():
                instance.end()

    def requestheaders(self, flow: HTTPFlow) -> None:
        """Note the peer and the process."""
        _annotate(flow)

    def tcp_start(self, flow: TCPFlow) -> None:
        """Note the peer and the process."""
        _annotate(flow)

    def udp_start(self, flow: UDPFlow) -> None:
        """Note the peer and the process."""
        _annotate(flow)

    def dns_request(self, flow: DNSFlow) -> None:
        """Note the peer and the process."""
        _annotate(flow)

    def error(self, flow: Flow) -> None:
        """Note the peer and the process of a flow that failed early."""
        _annotate(flow)

    # Commands.

    @command.command("watm.load")
    def load_spec(self, spec: str) -> None:
        """Run a transport module as a server: wireguard or PATH.wasm, then @[host:]port."""
        if _same(spec, _watm_modes()):
            raise exceptions.CommandError(f"{spec} is loaded already")
        try:
            data = WatmMode.parse(complete(spec)).parsed
        except ValueError as e:
            raise exceptions.CommandError(str(e)) from e
        unsealed, confdir = ctx.options.watm_unsealed, Path(ctx.options.confdir).expanduser()

        def check() -> None:
            build_config(data, confdir)
            if data.options.updates is None:
                read_module(data.module, unsealed=unsealed)

        # mitmproxy starts the server after the command, and only logs a failure to start.
        wait(THREADS.submit(check))
        self._update([*ctx.options.watm, spec])

    @command.command("watm.unload")
    def unload_spec(self, spec: str) -> None:
        """Stop a server that runs a transport module, named as it was loaded, or by MODULE[@[host:]port]."""
        found = _named(spec, _watm_modes())
        if found is None:
            raise exceptions.CommandError(f"{spec} is not loaded; loaded: {', '.join(_watm_modes()) or 'none'}")
        if ours := _same(found, ctx.options.watm):
            self._update([other for other in ctx.options.watm if other != ours])
        else:
            ctx.options.update(mode=[mode for mode in ctx.options.mode if mode != found])

    @command.command("watm.swap")
    def swap(self, spec: str, module: str) -> None:
        """Replace a running module with another (a name, or PATH.wasm), and keep its flows."""
        self._swap(self.upstreams.find(spec) or self._running(spec), module)

    @command.command("watm.capture.start")
    def start_capture(self, spec: str, file: mitmproxy.types.Path) -> None:
        """Write a server's packets and the keys of their TLS connections to a new pcapng file."""
        wait(self._running(spec).begin_capture(Path(file)))

    @command.command("watm.capture.stop")
    def stop_capture(self, spec: str) -> None:
        """End the capture of a server."""
        wait(self._running(spec).end_capture())

    @command.command("watm.network")
    def change_network(self, spec: str, *words: str) -> None:
        """Put a bad network between a server and its peers, such as 3g, delay=100ms loss=1%, or off."""
        wait(self._running(spec).change_network(" ".join(words)))

    @command.command("watm.update")
    def ask_for_update(self, spec: str) -> None:
        """Check now for a newer module, if the server has an option update."""
        self._updates_of(spec).check()

    @command.command("watm.approve")
    def approve(self, spec: str, release: str) -> None:
        """Approve the capabilities of a waiting release that an update brought; see watm.status."""
        updates = self._updates_of(spec)
        if updates.status.waiting != release:
            waiting = updates.status.waiting or "none"
            raise exceptions.CommandError(f"no release {release} waits for approval; waiting: {waiting}")
        wait(THREADS.submit(updates.approve_now, release))

    @command.command("watm.rollback")
    def rollback(self, spec: str) -> None:
        """Return to the module that a running server or upstream had before its last swap."""
        found: Any = self.upstreams.find(spec) or self._running(spec)
        found.observe()
        if found.history.previous is None:
            raise exceptions.CommandError(f"{spec} has no previous module; swap another in first")
        self._swap(found, found.history.previous)

    @command.command("watm.status")
    def status(self) -> Sequence[str]:
        """Show the servers and upstreams that run transport modules, in words."""
        return report([*(describe(instance) for instance in instances()), *self._upstreams()])

    @command.command("watm.status.json")
    def status_json(self) -> str:
        """Return the status of the servers and upstreams that run transport modules, as JSON."""
        return json.dumps([*(describe(instance) for instance in instances()), *self._upstreams()], indent=4)

    @command.command("watm.page")
    def page_address(self) -> str:
        """Show the address of the page in mitmweb with the servers, QR codes and peers."""
        address = page.address()
        if address is None:
            raise exceptions.CommandError("the page is part of mitmweb, which does not run; watm.status shows the same")
        return address

    def _upstreams(self) -> list[dict[str, Any]]:
        return [describe_upstream(upstream) for upstream in self.upstreams.upstreams.values()]

    def _swap(self, found: Any, module: AnyModule) -> None:
        serving = found.serving()
        swapping = found.begin_swap(module)
        wait(swapping, lambda: found.serving() != serving)
        self._keep(found.finish_swap(swapping))

    def _running(self, spec: str) -> WatmInstance:
        among = {instance.mode.full_spec: instance for instance in instances() if instance.is_running}
        found = _named(spec, list(among))
        if found is None:
            raise exceptions.CommandError(f"{spec} does not run; loaded: {', '.join(_watm_modes()) or 'none'}")
        return among[found]

    def _updates_of(self, spec: str) -> Updates:
        upstream = self.upstreams.find(spec)
        running = self._running(spec).server if upstream is None else upstream.dialer
        if running is None or running.updates is None:
            raise exceptions.CommandError(f"{spec} has no option update, such as ?update=https://example.com/x.wasm")
        return running.updates

    def _keep(self, work: Coroutine[Any, Any, object]) -> None:
        self._work.add(task := asyncio.ensure_future(work))
        task.add_done_callback(self._work.discard)

    def _update(self, specs: list[str]) -> None:
        try:
            ctx.options.update(watm=specs)
        except exceptions.OptionsError as e:
            raise exceptions.CommandError(str(e)) from e


def _annotate(flow: Flow) -> None:
    annotate(flow)
    annotate_process(flow)


def _proxyserver() -> Any:
    return ctx.master.addons.get("proxyserver")


def _modes() -> list[str]:
    """Returns the requested modes; none if the option was never set."""
    untouched = ctx.options._options["mode"].value is optmanager.unset
    return [] if untouched else list(ctx.options.mode)


def _watm_modes() -> list[str]:
    return [mode for mode in ctx.options.mode if mode.startswith(PREFIX)]


def _same(spec: str, among: Sequence[str]) -> str | None:
    """Returns the specification that means the same as `spec`."""
    return next((other for other in among if complete(other) == complete(spec)), None)


def _named(spec: str, among: Sequence[str]) -> str | None:
    """Returns the specification that `spec` abbreviates: options and port may be left out if the
    rest is unique."""
    if found := _same(spec, among):
        return found
    wanted = complete(spec)
    shorter = {complete(other): other for other in among if wanted in _short(complete(other))}
    if len(shorter) > 1:
        raise exceptions.CommandError(f"{spec} may be any of {', '.join(shorter.values())}; name one with its port")
    return next(iter(shorter.values()), None)


def _short(spec: str) -> tuple[str, str]:
    """Returns MODULE@[host:]port, and MODULE."""
    rest, at, listen = spec.rpartition("@") if "@" in spec else (spec, "", "")
    module = rest.partition("?")[0]
    return module + at + listen, module

"""The addon: an option, commands, the page in mitmweb, and the peer in each flow."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Sequence
from typing import Any

from mitmproxy import command, ctx, exceptions, optmanager
from mitmproxy.addonmanager import Loader
from mitmproxy.dns import DNSFlow
from mitmproxy.flow import Flow
from mitmproxy.http import HTTPFlow
from mitmproxy.tcp import TCPFlow
from mitmproxy.udp import UDPFlow

from mitmproxy_watm.mode import page
from mitmproxy_watm.mode.peers import annotate
from mitmproxy_watm.mode.spec import PREFIX, complete
from mitmproxy_watm.mode.status import describe, instances

logger = logging.getLogger(__name__)


class Watm:
    """Brings the `watm:` modes to a mitmproxy. Any number of times: loading it again is harmless."""

    def __init__(self) -> None:
        self._late = False
        self._ours: list[str] = []
        self._swaps: set[asyncio.Future[bool]] = set()

    # Hooks of mitmproxy's.

    def load(self, loader: Loader) -> None:
        """Add the option."""
        proxyserver = _proxyserver()
        self._late = proxyserver is not None and proxyserver.is_running
        loader.add_option(
            "watm",
            Sequence[str],
            [],
            "Run a transport module as a server: wireguard or PATH.wasm, options as ?name=value&..., "
            "where to listen as @[host:]port. In addition to what mode says, or in place of its default.",
        )
        loader.add_option(
            "watm_unsealed",
            bool,
            False,
            "For development: also run transport modules that have no seal. Others need one that `watm trust` trusts.",
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
        """Start what was asked for since mitmproxy started its servers."""
        page.install()
        # A script that is loaded later is called without a wait, and needs none: by then
        # mitmproxy itself follows the option.
        return None if self._late else _proxyserver().setup_servers()

    def requestheaders(self, flow: HTTPFlow) -> None:
        """Note the peer."""
        annotate(flow)

    def tcp_start(self, flow: TCPFlow) -> None:
        """Note the peer."""
        annotate(flow)

    def udp_start(self, flow: UDPFlow) -> None:
        """Note the peer."""
        annotate(flow)

    def dns_request(self, flow: DNSFlow) -> None:
        """Note the peer."""
        annotate(flow)

    def error(self, flow: Flow) -> None:
        """Note the peer of a flow that failed before it got anywhere."""
        annotate(flow)

    # Commands.

    @command.command("watm.load")
    def load_spec(self, spec: str) -> None:
        """Run a transport module as a server: wireguard or PATH.wasm, then @[host:]port."""
        if _same(spec, _watm_modes()):
            raise exceptions.CommandError(f"{spec} is loaded already")
        self._update([*ctx.options.watm, spec])

    @command.command("watm.unload")
    def unload_spec(self, spec: str) -> None:
        """Stop a server that runs a transport module, named as it was loaded."""
        if found := _same(spec, ctx.options.watm):
            self._update([other for other in ctx.options.watm if other != found])
        elif found := _same(spec, _watm_modes()):
            ctx.options.update(mode=[mode for mode in ctx.options.mode if mode != found])
        else:
            raise exceptions.CommandError(f"{spec} is not loaded; loaded: {', '.join(_watm_modes()) or 'none'}")

    @command.command("watm.swap")
    def swap(self, spec: str, module: str) -> None:
        """Put another module (a name, or PATH.wasm) in the place of a running one, flows and all."""
        found = next((instance for instance in instances() if _same(instance.mode.full_spec, [spec])), None)
        if found is None or not found.is_running:
            raise exceptions.CommandError(f"{spec} does not run; loaded: {', '.join(_watm_modes()) or 'none'}")
        self._swaps.add(task := asyncio.ensure_future(found.swap(module)))
        task.add_done_callback(self._swaps.discard)

    @command.command("watm.status")
    def status(self) -> str:
        """How the servers that run transport modules are doing, as JSON."""
        return json.dumps([describe(instance) for instance in instances()], indent=4)

    def _update(self, specs: list[str]) -> None:
        try:
            ctx.options.update(watm=specs)
        except exceptions.OptionsError as e:
            raise exceptions.CommandError(str(e)) from e


def _proxyserver() -> Any:
    return ctx.master.addons.get("proxyserver")


def _modes() -> list[str]:
    """The modes that were asked for; none if nobody said any."""
    untouched = ctx.options._options["mode"].value is optmanager.unset
    return [] if untouched else list(ctx.options.mode)


def _watm_modes() -> list[str]:
    return [mode for mode in ctx.options.mode if mode.startswith(PREFIX)]


def _same(spec: str, among: Sequence[str]) -> str | None:
    """The one that means the same as `spec`."""
    return next((other for other in among if complete(other) == complete(spec)), None)

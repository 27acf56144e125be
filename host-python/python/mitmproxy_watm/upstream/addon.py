"""The part of the addon for upstreams: options, commands, and the choice of one."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Sequence
from typing import Any

from mitmproxy import command, ctx, exceptions
from mitmproxy.addonmanager import Loader
from mitmproxy.connection import Client, Server
from mitmproxy.dns import DNSFlow
from mitmproxy.flow import Flow
from mitmproxy.http import HTTPFlow
from mitmproxy.net.dns import response_codes
from mitmproxy.proxy.mode_specs import DnsMode, WireGuardMode
from mitmproxy.tcp import TCPFlow
from mitmproxy.udp import UDPFlow

from mitmproxy_watm.mode.waiting import wait
from mitmproxy_watm.stream import Stream
from mitmproxy_watm.upstream import hook
from mitmproxy_watm.upstream.choice import annotate, chosen, note
from mitmproxy_watm.upstream.spec import DIRECT, Route, Spec, in_order, parse, parse_route
from mitmproxy_watm.upstream.status import NAME, describe
from mitmproxy_watm.upstream.upstream import Upstream

logger = logging.getLogger(__name__)

TUNNEL_DNS = ("10.0.0.53", 53)
"""The DNS server of clients of mitmproxy's WireGuard mode."""


class Upstreams:
    """Makes mitmproxy connect to servers through modules."""

    name = NAME
    """The name by which mitmproxy knows it."""

    def __init__(self) -> None:
        self.upstreams: dict[str, Upstream] = {}
        self.routes: list[Route] = []
        self.default = DIRECT
        """The name of the default upstream, for connections that match no route."""
        self._late = False
        self._started: dict[str, Upstream] = {}
        """Upstreams that a command has started, until `configure` takes them."""

    # Hooks of mitmproxy.

    def load(self, loader: Loader) -> None:
        """Add the options."""
        proxyserver = ctx.master.addons.get("proxyserver")
        self._late = proxyserver is not None and proxyserver.is_running
        loader.add_option(
            "watm_upstream",
            Sequence[str],
            [],
            "Connect to servers through a transport module: [NAME=]MODULE, options as ?config=FILE&name=value&... "
            "One without a name is the default for connections without a matching watm_route.",
        )
        loader.add_option(
            "watm_route",
            Sequence[str],
            [],
            "Routes connections to upstreams; the first match wins: PATTERN=NAME or PATTERN=direct. A pattern is a name, "
            "*.name, address, network or *, then :port or :low-high, optionally after tcp:// or udp://, or app:PROGRAM.",
        )

    def configure(self, updated: set[str]) -> None:
        """Check the options, and start and stop upstreams accordingly."""
        if not updated & {"watm_upstream", "watm_route"}:
            return
        specs = [_parsed(parse, "watm_upstream", text) for text in ctx.options.watm_upstream]
        routes = [_parsed(parse_route, "watm_route", text) for text in ctx.options.watm_route]
        _check(specs, routes)
        if specs:
            try:
                hook.install(self._open)
            except RuntimeError as e:
                raise exceptions.OptionsError(f"watm_upstream: {e}") from e
        before, now = self.upstreams, dict[str, Upstream]()
        for spec in in_order(specs):
            known, through = before.get(spec.name), now.get(spec.through or "")
            # An unchanged upstream continues, with all its connections.
            kept = known if known is not None and known.is_for(spec, through) else None
            now[spec.name] = kept or self._started.pop(spec.text, None) or Upstream(spec, through)
        self.upstreams = {spec.name: now[spec.name] for spec in specs}
        for name, known in before.items():
            if self.upstreams.get(name) is not known:
                known.close()
        self.routes = routes
        self.default = next((spec.name for spec in specs if spec.is_default), DIRECT)

    def running(self) -> Awaitable[Any] | None:
        """Wait for the requested upstreams: a failure to start is an error of mitmproxy's start."""
        # A script that is loaded later is called without a wait, and connections wait by
        # themselves.
        return None if self._late or not self.upstreams else self._ready()

    def done(self) -> None:
        """Stop all upstreams."""
        hook.remove(self._open)
        for upstream in self.upstreams.values():
            upstream.close()

    async def dns_request(self, flow: DNSFlow) -> None:
        """Ask the DNS server behind an upstream in place of this machine's."""
        if flow.response or flow.error or not flow.live or not _is_for_us(flow):
            return
        question = flow.request.question
        if question is None:
            return
        try:
            upstream = self._choose(flow.client_conn, flow.server_conn, "udp", [question.name], 53, None)
            if upstream is None:
                return
            await upstream.ready()
            if upstream.resolver is None and upstream.dialer is not None:
                return
            answer = await upstream.ask(flow.request.packed, None)
            flow.response = type(flow.request).unpack(answer)
            note(flow.server_conn, upstream.spec.name)
            annotate(flow)
        except (OSError, ValueError) as e:
            logger.warning("%s cannot be looked up: %s", question.name, e)
            flow.response = flow.request.fail(response_codes.SERVFAIL)

    def responseheaders(self, flow: HTTPFlow) -> None:
        """Note the upstream."""
        annotate(flow)

    def tcp_start(self, flow: TCPFlow) -> None:
        """Note the upstream."""
        annotate(flow)

    def tcp_message(self, flow: TCPFlow) -> None:
        """Note the upstream."""
        annotate(flow)

    def udp_start(self, flow: UDPFlow) -> None:
        """Note the upstream."""
        annotate(flow)

    def udp_message(self, flow: UDPFlow) -> None:
        """Note the upstream."""
        annotate(flow)

    def dns_response(self, flow: DNSFlow) -> None:
        """Note the upstream."""
        annotate(flow)

    def error(self, flow: Flow) -> None:
        """Note the upstream, and its error."""
        annotate(flow)
        said = None if flow.server_conn is None else flow.server_conn.error
        if said and flow.error is not None and said not in flow.error.msg and " through " in said:
            flow.error.msg = f"{flow.error.msg}: {said}"

    # Commands.

    @command.command("watm.upstream.load")
    def load_upstream(self, spec: str) -> None:
        """Connect through a transport module: [NAME=]MODULE[?name=value&...]. Replaces an upstream
        of the same name."""
        wanted = _commanded(parse, spec)
        known = self.find(wanted.name)
        if known is not None and known.spec == wanted and known.dialer is not None:
            return
        through = None if wanted.through is None else self._named(wanted.through)
        upstream = Upstream(wanted, through)
        try:
            wait(upstream.opening)
            self._started[spec] = upstream
            _update(watm_upstream=[*_without(wanted.name), spec])
        except exceptions.CommandError:
            upstream.close()
            raise
        finally:
            self._started.pop(spec, None)
        upstream.on_failure = lambda: self._drop(upstream)

    @command.command("watm.upstream.unload")
    def unload_upstream(self, name: str) -> None:
        """Remove an upstream. Routes to it must be removed first."""
        self._named(name)
        _update(watm_upstream=_without(name))

    @command.command("watm.upstream.list")
    def list_upstreams(self) -> str:
        """Show the upstreams, routes and the default, as JSON."""
        return json.dumps(
            {
                "upstreams": [describe(upstream) for upstream in self.upstreams.values()],
                "routes": [route.text for route in self.routes],
                "default": self.default,
            },
            indent=4,
        )

    @command.command("watm.upstream.choose")
    def choose_upstream(self, name: str) -> None:
        """Use this upstream, or direct, for connections without a route, until watm_upstream is set
        again."""
        self.default = name if name == DIRECT else self._named(name).spec.name

    @command.command("watm.upstream.route")
    def add_route(self, route: str) -> None:
        """Put PATTERN=NAME or PATTERN=direct before all other routes."""
        _commanded(parse_route, route)
        _update(watm_route=[route, *(other for other in ctx.options.watm_route if other != route)])

    def _drop(self, upstream: Upstream) -> None:
        """Remove an upstream that a command loaded, and that failed after the command."""
        if self.find(upstream.spec.name) is upstream:
            try:
                _update(watm_upstream=_without(upstream.spec.name))
            except exceptions.CommandError as e:
                logger.error("%s", e)

    def find(self, name: str) -> Upstream | None:
        """Returns the upstream of this name."""
        return self.upstreams.get(name)

    def _named(self, name: str) -> Upstream:
        found = self.find(name)
        if found is None:
            raise exceptions.CommandError(f"no upstream {name}; available: {', '.join(self.upstreams) or 'none'}")
        return found

    # The choice of an upstream.

    async def _open(self, wanted: hook.Wanted, host: str, port: int) -> Stream | None:
        transport = wanted.server.transport_protocol
        # The client's name for the server, if only its address is known otherwise.
        hosts = [host, *filter(None, [wanted.server.sni, wanted.client.sni])]
        application = _application(wanted.transport)
        # Their rules are known once they run.
        await self._ready()
        upstream = self._choose(wanted.client, wanted.server, transport, hosts, port, application)
        if upstream is None:
            return None
        note(wanted.server, upstream.spec.name)
        return await upstream.open(wanted.server, transport, host, port, application)

    async def _ready(self) -> None:
        await asyncio.gather(*(upstream.ready() for upstream in self.upstreams.values()))

    def _choose(
        self, client: Client, server: Server, transport: str, hosts: list[str], port: int, application: str | None
    ) -> Upstream | None:
        if (name := chosen(client, server)) is not None:
            if name == DIRECT:
                return None
            if (found := self.find(name)) is None:
                raise OSError(f"an addon chose the upstream {name}, which does not exist")
            return found
        for route in self.routes:
            if not route.means(transport, hosts, port, application):
                continue
            if route.upstream == DIRECT:
                return None
            if self.upstreams[route.upstream].passes(application):
                return self.upstreams[route.upstream]
        default = self.find(self.default)
        return default if default is not None and default.passes(application) else None


def _application(transport: Any) -> str | None:
    """Returns the client's program, if mitmproxy knows it: in its local mode."""
    if transport is None:
        return None
    return transport.get_extra_info("process_name", "") or None


def _is_for_us(flow: DNSFlow) -> bool:
    """Returns True if mitmproxy answers the request itself."""
    mode = flow.client_conn.proxy_mode
    return isinstance(mode, DnsMode) or isinstance(mode, WireGuardMode) and flow.server_conn.address == TUNNEL_DNS


def _check(specs: list[Spec], routes: list[Route]) -> None:
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise exceptions.OptionsError(f"watm_upstream: duplicate name {name}; write NAME=MODULE")
    if len(unnamed := [spec.name for spec in specs if spec.is_default]) > 1:
        nameless = " and ".join(unnamed)
        raise exceptions.OptionsError(f"watm_upstream: {nameless} have no name, but only one can be the default")
    for route in routes:
        if route.upstream != DIRECT and route.upstream not in names:
            there = ", ".join([*names, DIRECT])
            raise exceptions.OptionsError(f"watm_route: {route.text}: no upstream {route.upstream}; available: {there}")
    _parsed(in_order, "watm_upstream", specs)


def _without(name: str) -> list[str]:
    """Returns the option without the upstream of this name."""
    return [text for text in ctx.options.watm_upstream if parse(text).name != name]


def _parsed(parser: Any, option: str, value: Any) -> Any:
    try:
        return parser(value)
    except ValueError as e:
        raise exceptions.OptionsError(f"{option}: {e}") from e


def _commanded(parser: Any, text: str) -> Any:
    try:
        return parser(text)
    except ValueError as e:
        raise exceptions.CommandError(str(e)) from e


def _update(**options: Any) -> None:
    try:
        ctx.options.update(**options)
    except exceptions.OptionsError as e:
        raise exceptions.CommandError(str(e)) from e

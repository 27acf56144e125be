"""Upstreams of mitmproxy: their specifications, their choice, and a connection through one."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_mitmdump import ADDON

import mitmproxy_watm
from mitmproxy_watm._options import ModuleOptions
from mitmproxy_watm.updates import UpdateSource
from mitmproxy_watm.upstream import hook
from mitmproxy_watm.upstream.config import read_options
from mitmproxy_watm.upstream.errors import through
from mitmproxy_watm.upstream.spec import Spec, in_order, parse, parse_route
from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support.mitmproxy_programs import start
from watm_test_support.mitmweb import log_in, start_web
from watm_test_support.ports import free_port
from watm_test_support.upper_case import upper


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("wireguard", Spec("wireguard", "wireguard", True, "wireguard", options=ModuleOptions(name="wireguard"))),
        (
            "wg0=wireguard?config=/etc/wg0.conf&dns=10.0.0.1,10.0.0.2&udp=0.0.0.0:7",
            Spec(
                "wg0=wireguard?config=/etc/wg0.conf&dns=10.0.0.1,10.0.0.2&udp=0.0.0.0:7",
                "wg0", False, "wireguard", Path("/etc/wg0.conf"),
                options=ModuleOptions(name="wg0", dns=("10.0.0.1", "10.0.0.2"), udp="0.0.0.0:7"),
            ),
        ),
        ("plain?to=[::1]:80&udp=off", Spec(
            "plain?to=[::1]:80&udp=off", "plain", True, "plain", to=("::1", 80),
            options=ModuleOptions(name="plain", udp=False))),
        ("x=/a/b.wasm?fixed=on&allow=a:1,b", Spec(
            "x=/a/b.wasm?fixed=on&allow=a:1,b", "x", False, "/a/b.wasm", watch=True,
            options=ModuleOptions(name="x", fixed=True, allow=("a:1", "b")))),
        ("x=plain?update=http://a/b&every=5m", Spec(
            "x=plain?update=http://a/b&every=5m", "x", False, "plain",
            options=ModuleOptions(name="x", updates=UpdateSource(source="http://a/b", every=300)))),
        ("x=tls?host_keys=a=/k&pcap=/p&key_log=/l", Spec(
            "x=tls?host_keys=a=/k&pcap=/p&key_log=/l", "x", False, "tls",
            options=ModuleOptions(name="x", keys={"a": Path("/k")}, pcap=Path("/p"), key_log=Path("/l")))),
        ("x=plain?through=y", Spec(
            "x=plain?through=y", "x", False, "plain", through="y", options=ModuleOptions(name="x"))),
        ("x=plain?mtu=1280", Spec("x=plain?mtu=1280", "x", False, "plain",
            options=ModuleOptions(name="x"), fields={"mtu": 1280})),
    ],
)  # fmt: skip
def test_upstreams_are_taken_apart(text, spec):
    assert replace(parse(text), about=None) == spec


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "module"),
        ("wg0=", "module"),
        ("direct=plain", "must be letters"),
        ("/a/b c.wasm", "must be letters"),
        ("plain?to=nowhere", "option to"),
        ("plain?to=a:0", "option to"),
        ("plain?fixed=maybe", "option fixed"),
        ("plain?fixed=on&to=a:1", "give one of them"),
        ("plain?config", "write it as"),
        ("plain?through=direct", "must be the name of another upstream"),
        ("plain?through=plain", "must be the name of another upstream"),
        ("plain?through=", "must be the name of another upstream"),
        ("plain?through=x&udp=[::]:7", "the other upstream opens the socket"),
    ],
)
def test_what_is_no_upstream_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        parse(text)


def test_a_chain_is_in_order():
    specs = [parse(text) for text in ("a=plain?through=b", "b=plain?through=c", "d=plain", "c=plain")]
    assert [spec.name for spec in in_order(specs)] == ["d", "c", "b", "a"]
    with pytest.raises(ValueError, match="option through of a: no upstream b; available: c"):
        in_order([parse("a=plain?through=b"), parse("c=plain")])
    with pytest.raises(ValueError, match="option through: a, b go through each other"):
        in_order([parse("a=plain?through=b"), parse("b=plain?through=a"), parse("c=plain")])


@pytest.mark.parametrize(
    ("route", "connection", "meant"),
    [
        ("*=a", ("tcp", ["example.com"], 80, None), True),
        ("*.example.com=a", ("tcp", ["www.example.com"], 80, None), True),
        ("*.example.com=a", ("tcp", ["example.com"], 80, None), False),
        ("*.example.com=a", ("tcp", ["192.0.2.1", "www.example.com"], 443, None), True),
        ("example.com:443=a", ("tcp", ["example.com"], 80, None), False),
        ("example.com:443=a", ("udp", ["example.com"], 443, None), True),
        ("udp://example.com=a", ("tcp", ["example.com"], 443, None), False),
        ("10.0.0.0/8:1-99=a", ("tcp", ["10.2.3.4"], 99, None), True),
        ("10.0.0.0/8=a", ("tcp", ["example.com"], 99, None), False),
        ("[2001:db8::/32]=a", ("tcp", ["2001:db8::1"], 1, None), True),
        ("app:firefox=a", ("tcp", ["example.com"], 1, "/usr/bin/firefox"), True),
        ("app:firefox=a", ("tcp", ["example.com"], 1, "/usr/bin/curl"), False),
        ("app:firefox=a", ("tcp", ["example.com"], 1, None), False),
    ],
)
def test_routes_mean_connections(route, connection, meant):
    assert parse_route(route).means(*connection) == meant


@pytest.mark.parametrize("text", ["", "*", "a b=x", "*=", "*=a b", "app:=x", "10.0.0.0/33=x", "=x"])
def test_what_is_no_route_is_refused(text):
    with pytest.raises(ValueError):
        parse_route(text)


def test_the_host_heeds_what_a_configuration_says_to_it(tmp_path):
    path = tmp_path / "wg0.conf"
    path.write_text(
        "[Interface]\nDNS = 10.0.0.1, search.test # ours\nDNS=fd00::1\n"
        "[Peer]\nEndpoint = vpn.example.com:51820\nAllowedApps = firefox\n"
    )
    options = read_options(parse(f"wireguard?config={path}"))
    assert options.dns == ("10.0.0.1", "fd00::1")
    assert options.allow == ("udp://vpn.example.com:51820", "tcp://vpn.example.com:51820")
    assert options.applications.allowed == ("firefox",)
    assert b"AllowedApps" not in options.config
    assert read_options(parse(f"wireguard?config={path}&dns=host")).dns == ("host",)
    with pytest.raises(ValueError, match="mtu: .* is not a JSON object"):
        read_options(parse(f"wireguard?config={path}&mtu=1280"))
    path.write_text('{"server": "2001:db8::1", "server_port": 8388}')
    options = read_options(parse(f"shadowsocks?config={path}&timeout=9"))
    assert options.allow == ("[2001:db8::1]:8388",)
    assert json.loads(options.config)["timeout"] == 9


@pytest.mark.parametrize(
    ("server", "allowed"),
    [
        ("proxy.test:1080", ("tcp://proxy.test:1080", "udp://proxy.test")),
        ("socks5://a:p@s/s@192.0.2.1:1080/", ("tcp://192.0.2.1:1080", "udp://192.0.2.1")),
        ("http://[2001:db8::1]:8080", ("tcp://[2001:db8::1]:8080", "udp://[2001:db8::1]")),
        # The module says what is wrong.
        ("proxy.test", ()),
    ],
)
def test_a_proxy_is_admitted_wherever_it_is_configured(tmp_path, server, allowed):
    path = tmp_path / "proxy.json"
    path.write_text(json.dumps({"server": server}))
    for text in (f"socks5?server={server}", f"socks5?config={path}", f"socks5?config={path}&udp_idle_timeout=20"):
        assert read_options(parse(text)).allow == allowed
    path.write_text("{}")
    assert read_options(parse(f"socks5?config={path}&server={server}")).allow == allowed


def test_a_name_and_a_password_are_texts_and_not_shown():
    spec = parse("socks5?server=proxy.test:1080&user=1e5&password=007&udp_idle_timeout=20")
    assert spec.fields == {"server": "proxy.test:1080", "user": "1e5", "password": "007", "udp_idle_timeout": 20}
    assert spec.shown == "socks5?server=proxy.test:1080&user=1e5&password=***&udp_idle_timeout=20"
    assert parse("socks5?password=007").shown == "socks5?password=***"
    assert parse("socks5?server=http://a:b@proxy.test:1").shown == "socks5?server=http://***@proxy.test:1"
    assert parse("x=plain?to=a:1").shown == "x=plain?to=a:1"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(111, "wg0: connection refused (10.0.0.1:9)"), "connection refused through wg0: connection refused (10.0.0.1:9)"),
        (ConnectionResetError(104, "connection reset"), "connection reset through wg0"),
        (TimeoutError(), "timed out through wg0"),
        (ValueError("what"), "failed through wg0: what"),
    ],
)  # fmt: skip
def test_errors_name_the_upstream(error, text):
    made = through("wg0", error)
    assert isinstance(made, OSError) and str(made) == text


def test_another_mitmproxy_is_refused_loudly(monkeypatch):
    async def open_connection(self, command):
        await self.elsewhere(command)

    monkeypatch.setattr(hook, "_installed", False)
    monkeypatch.setattr(hook.core.ConnectionHandler, "open_connection", open_connection)
    with pytest.raises(RuntimeError, match="opens connections in an unsupported way"):
        hook.install(None)


async def test_connections_go_through_an_upstream(tmp_path):
    async def answer(stream: mitmproxy_watm.Stream) -> None:
        await stream.readuntil(b"\r\n\r\n")
        stream.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nthere")
        stream.close()

    port = free_port()
    async with await mitmproxy_watm.start_server("plain", "127.0.0.1", 0, handle_tcp_stream=answer) as server:
        other = f"127.0.0.1:{server.getsockname()[1]}"
        options = ["--mode", f"regular@127.0.0.1:{port}", "--set", f"watm_upstream=plain?to={other}", "--set", "watm_route=*:81=direct"]
        async with start("mitmdump-watm", tmp_path, *options, observed=False) as program:
            await program.wait_for("listening at")
            for target, said in ((b"example.test", b"there"), (b"127.0.0.1:81", b"502 Bad Gateway")):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET http://%s/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % target)
                assert said in await reader.read()
                writer.close()


class Transport:
    """A client's connection whose program mitmproxy's local mode knows."""

    def __init__(self, program: str | None) -> None:
        self.program = program

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self.program if name == "process_name" and self.program else default


# Needed for imports of mitmproxy's own tests.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_programs_have_upstreams_by_routes_and_by_their_configurations(tmp_path):
    from mitmproxy.test import taddons
    from mitmproxy.test.tflow import tclient_conn, tserver_conn

    from mitmproxy_watm.mitmproxy import Watm, upstream_of

    tunnel = tmp_path / "wg0.conf"
    tunnel.write_text(
        f"[Interface]\nPrivateKey = {genkey()}\nAddress = 10.0.0.2/32\n[Peer]\nPublicKey = {pubkey(genkey())}\n"
        "AllowedIPs = 0.0.0.0/0\nEndpoint = 127.0.0.1:9\nAllowedApps = thunderbird\nDisallowedApps = /opt\n"
    )

    async def open_for(addon: object, program: str | None, port: int, transport: str = "tcp") -> object:
        """Returns the upstream of a connection on behalf of a program."""
        server = tserver_conn()
        server.transport_protocol = transport
        wanted = hook.Wanted(tclient_conn(), server, Transport(program))
        stream = await addon.upstreams._open(wanted, "127.0.0.1", port)
        if stream is not None:
            stream.close()
        return upstream_of(server)

    async with upper() as port:
        with taddons.context(Watm()) as context:
            addon = context.master.addons.get("watm")
            specs = [f"wireguard?config={tunnel}", "far=plain"]
            context.configure(addon.upstreams, watm_upstream=specs, watm_route=["app:firefox=far"])
            try:
                assert await open_for(addon, "/usr/bin/firefox", port) == "far"
                # Datagrams, which are sent although nobody answers there.
                assert await open_for(addon, "/usr/bin/thunderbird", port, "udp") == "wireguard"
                # The upstream does not admit these programs, so they bypass it.
                assert await open_for(addon, "/usr/bin/curl", port) is None
                assert await open_for(addon, "/opt/thunderbird", port) is None
                # The application is unknown.
                with pytest.raises(OSError, match="not allowed through wireguard: has rules for applications"):
                    await open_for(addon, None, port)
            finally:
                addon.upstreams.done()


async def test_a_stock_mitmproxy_has_upstreams_by_the_addon(tmp_path):
    options = ("-s", str(ADDON), "--mode", "regular@127.0.0.1:0", "--set", "watm_upstream=plain")
    async with start("mitmdump", tmp_path, *options) as program:
        await program.wait_for("The upstream plain runs plain")
        listed = json.loads(await program.ask(command="watm.upstream.list"))
        assert (listed["default"], listed["upstreams"][0]["phase"]) == ("plain", "running")
        await program.ask(command="watm.upstream.choose direct")
        assert json.loads(await program.ask(command="watm.upstream.list"))["default"] == "direct"
        assert "no upstream a; available: plain" in await program.ask(command="watm.upstream.choose a")
        assert "Addon error" not in program.text


async def test_an_upstream_that_does_not_start_is_not_loaded_and_the_command_says_why(tmp_path):
    (tmp_path / "wrong.conf").write_text("[Interface]\nColour = red\n[Peer]\nEndpoint = 127.0.0.1:9\n")
    (tmp_path / "nowhere.conf").write_text("[Interface]\n[Peer]\nAllowedIPs = 0.0.0.0/0\n")
    (tmp_path / "nobody.conf").write_text("[Interface]\n")
    async with start("mitmdump-watm", tmp_path, "--mode", "regular@127.0.0.1:0") as program:
        await program.wait_for("listening at")
        for spec, why in (
            ("x=wireguard?config=/nonexistent", "CommandError: /nonexistent: No such file or directory"),
            ("x=/nonexistent.wasm", "CommandError: /nonexistent.wasm: No such file or directory"),
            (f"x=wireguard?config={tmp_path}/wrong.conf", "[Interface] Colour: unknown"),
            (f"x=wireguard?config={tmp_path}/nowhere.conf", "nowhere.conf: no [Peer] has an Endpoint, so there is no server"),
            (f"x=wireguard?config={tmp_path}/nobody.conf", "nobody.conf: has no [Peer] section, so there is no server"),
            ("x=nothing", "'nothing' is neither"),
        ):
            assert why in await program.ask(command=f"watm.upstream.load {spec}")
            assert json.loads(await program.ask(command="watm.upstream.list"))["upstreams"] == []
        assert "Traceback" not in program.text and "does not run" not in program.text

        # A running upstream stays when its replacement fails.
        assert await program.ask(command="watm.upstream.load x=plain") is None
        assert "No such file" in await program.ask(command="watm.upstream.load x=/nonexistent.wasm")
        (kept,) = json.loads(await program.ask(command="watm.upstream.list"))["upstreams"]
        assert (kept["spec"], kept["running"]) == ("x=plain", True)
        assert "No such file" in await program.ask(command="watm.swap x /nonexistent.wasm")
        assert await program.ask(command="watm.swap x reverse") is None
        await program.wait_for("x: now running reverse for new connections")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["watm_upstream=x=wireguard?config=/nonexistent"], "does not run: /nonexistent: No such file or directory"),
        (["watm_upstream=nothing"], "watm_upstream: module: 'nothing' is neither"),
        (["watm_upstream=plain", "watm_upstream=reverse"], "plain and reverse have no name"),
        (["watm_upstream=a=plain", "watm_upstream=a=reverse"], "duplicate name a"),
        (["watm_route=*=a"], "no upstream a; available: direct"),
        (["watm_route=*"], "must be PATTERN=NAME"),
        (["watm_upstream=missing.wasm"], "The upstream missing does not run"),
    ],
)
async def test_what_is_wrong_is_said_and_nothing_runs(tmp_path, options, said):
    arguments = [part for option in options for part in ("--set", option)]
    async with start("mitmdump-watm", tmp_path, "--mode", "regular@127.0.0.1:0", *arguments, observed=False) as program:
        assert await program.ended() == 1
        assert said in program.text


async def test_mitmwebs_page_shows_upstreams_and_swaps_them(tmp_path):
    async with upper() as port:
        options = ("--mode", "regular@127.0.0.1:0", "--set", f"watm_upstream=far=plain?to=127.0.0.1:{port}")
        async with start_web(tmp_path, *options) as (program, link):
            await program.wait_for("The upstream far runs plain")
            visitor = await log_in(link)
            text = (await visitor.get("/watm")).text
            for part in ("Upstream far", f"far=plain?to=127.0.0.1:{port}", "Running", 'data-swap="far"', "Sealed as watm/plain"):
                assert part in text
            # The host does not see the bytes of a WATER module.
            assert "Open flows" in text and "Throughput" not in text
            await program.ask(command="watm.swap far reverse")
            await program.wait_for("far: now running reverse for new connections")
            assert "Sealed as watm/reverse" in (await visitor.get("/watm/servers")).text

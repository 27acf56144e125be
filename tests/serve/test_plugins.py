"""Unmodified shadowsocks and Tor with modules as plugins."""

import re

import pytest

from watm_test_support.ports import free_port
from watm_test_support.repository import MODULES, WATM

from .programs import fetch, listens, wait_for

MODULE_FILES = ["plain.wasm", "plain.watm1.wasm"]


@pytest.mark.parametrize("module", MODULE_FILES)
def test_shadowsocks_goes_through_a_module(module, application, start, tmp_path):
    outer, socks = free_port(), free_port()
    common = ["-s", "127.0.0.1", "-p", outer, "-k", "secret", "-m", "aes-256-gcm", "--plugin", WATM]
    options = f"unsealed;module={MODULES / module}"
    start("server", "ss-server", *common, "--plugin-opts", f"server;{options}")
    start("client", "ss-local", *common, "--plugin-opts", options, "-l", socks)

    def logs() -> str:
        return (tmp_path / "server.log").read_text() + (tmp_path / "client.log").read_text()

    wait_for(lambda: listens(outer) and listens(socks) and logs().count("listening on 127.0.0.1") == 2, logs)
    proxy = ["--socks5-hostname", f"127.0.0.1:{socks}"]
    assert fetch(f"http://127.0.0.1:{application}/1000000", *proxy) == 1_000_000


# A private Tor network, so that Tor contacts nobody outside.
NETWORK = f"""
TestingTorNetwork 1
DirAuthority test orport=1 v3ident={1:040} 127.0.0.1:1 {0:040}
"""


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("module", MODULE_FILES)
def test_tor_reaches_a_bridge_through_a_module(module, extended, start, tmp_path):
    """Checks that the bridge's descriptor arrives over a circuit, which needs both directions at both ends."""
    onion, outer = free_port(), free_port()
    transport = f"exec {WATM} pt --unsealed plain={MODULES / module}"
    bridge = f"""
SocksPort 0
ORPort 127.0.0.1:{onion}
{"ExtORPort auto" if extended else ""}
BridgeRelay 1
PublishServerDescriptor 0
AssumeReachable 1
Address 127.0.0.1
ServerTransportPlugin plain {transport}
ServerTransportListenAddr plain 127.0.0.1:{outer}
"""
    client = f"""
SocksPort 0
UseBridges 1
ClientTransportPlugin plain {transport}
Bridge plain 127.0.0.1:{outer}
"""
    for name, configuration in [("bridge", bridge), ("client", client)]:
        folder = tmp_path / name
        folder.mkdir(mode=0o700)
        (folder / "torrc").write_text(f"DataDirectory {folder}\nLog [net]debug info stdout\n{NETWORK}{configuration}")
        start(name, "tor", "-f", folder / "torrc")

    def log(name: str) -> str:
        return (tmp_path / f"{name}.log").read_text(errors="replace")

    wait_for(lambda: "new bridge descriptor" in log("client"), lambda: log("bridge") + log("client"))
    assert re.search(rf"Registered server transport 'plain' at '127.0.0.1:{outer}'", log("bridge"))
    assert "CMETHOD plain socks5 127.0.0.1:" in log("client")
    assert ("Received USERADDR" in log("bridge")) == extended


def test_tor_gives_options_to_transports_and_hears_what_is_wrong_with_them(start, tmp_path):
    """Checks `from`, an option that the module needs, and `colour`, one that it does not know."""
    transport = f"exec {WATM} pt --unsealed {{}}={MODULES / 'proxy-protocol.wasm'}"
    bridge = f"""
SocksPort 0
ORPort 127.0.0.1:{free_port()}
BridgeRelay 1
PublishServerDescriptor 0
AssumeReachable 1
Address 127.0.0.1
ServerTransportPlugin good {transport.format("good")}
ServerTransportListenAddr good 127.0.0.1:{free_port()}
ServerTransportOptions good from=127.0.0.1 accept=v2
ServerTransportPlugin bad {transport.format("bad")}
ServerTransportListenAddr bad 127.0.0.1:{free_port()}
ServerTransportOptions bad from=127.0.0.1 colour=blue
"""
    client = f"""
SocksPort 0
UseBridges 1
ClientTransportPlugin plain exec {WATM} pt --unsealed plain={MODULES / 'plain.wasm'}
Bridge plain 127.0.0.1:{free_port()} colour=blue
"""
    for name, configuration in [("bridge", bridge), ("client", client)]:
        folder = tmp_path / name
        folder.mkdir(mode=0o700)
        (folder / "torrc").write_text(f"DataDirectory {folder}\nLog [pt]debug info stdout\n{NETWORK}{configuration}")
        start(name, "tor", "-f", folder / "torrc")

    def log(name: str) -> str:
        return (tmp_path / f"{name}.log").read_text(errors="replace")

    wait_for(lambda: "Registered server transport 'good'" in log("bridge"), lambda: log("bridge"))
    wait_for(lambda: re.search("SMETHOD-ERROR bad .*colour", log("bridge")), lambda: log("bridge"))
    wait_for(lambda: re.search(r"\[warn\] .*plain: bridge 127.0.0.1:\d+ not dialled: .*colour", log("client")), lambda: log("client"))

"""Clients of one address family at destinations of another, and the headers that upstreams get."""

import contextlib
import ipaddress
import json
import re
import struct
import subprocess

import pytest

from watm_test_support.haproxy import configured
from watm_test_support.ports import free_port
from watm_test_support.repository import MODULES, WATM
from watm_test_support.watm_serve import HOME, HOST, serving

from .programs import fetch, listens, wait_for
from .test_datagrams import SIGNATURE, config, datagrams, of
from .test_serve import believing

CLIENT = "::ffff:203.0.113.9"
VERSIONS = pytest.mark.parametrize("version", ["v1", "v2"])


def listener(module: str, given: str, upstream: int, version: str) -> str:
    return f"""
[[listener]]
module = "{MODULES / module}"
config = '{given}'
addresses = ["tcp://{HOST}:0"]
upstream = "{HOST}:{upstream}"
proxy-header = "{version}"
workers = 1
"""


@contextlib.contextmanager
def haproxy(start, folder, application):
    """Runs haproxy, which reads headers and logs their clients. Yields its port, and a function
    that waits for a line of its log.
    """
    port = free_port()
    start("haproxy", "haproxy", "-f", configured(folder, believing(port, application, "%ci and %[dst]"), "http"))
    log = folder / "haproxy.log"
    wait_for(lambda: listens(port), log.read_text)
    yield port, lambda said: wait_for(lambda: f"heard of {said}\n" in log.read_text(), log.read_text)


@VERSIONS
def test_haproxy_hears_of_a_client_behind_another_proxy(version, application, start, tmp_path):
    with haproxy(start, tmp_path, application) as (inner, heard):
        text = listener("proxy-protocol.wasm", f'from = "{HOST}"', inner, version)
        with serving(tmp_path / "watm", text) as running:
            asked = f"PROXY TCP6 {CLIENT} ::1 1234 80\r\nGET /10 HTTP/1.0\r\n\r\n"
            command = ["curl", "-sS", "--max-time", "10", f"telnet://{HOST}:{running.port}"]
            said = subprocess.run(command, input=asked.encode(), check=True, capture_output=True, timeout=60).stdout
            assert b"200 OK" in said
            heard(f"{CLIENT} and ::1")


@VERSIONS
def test_a_client_of_shadowsocks_that_asks_for_ipv6_is_still_the_client(version, application, start, tmp_path):
    """Checks that a client's choice of destination does not make it look like the proxy itself."""
    given = json.dumps({"method": "aes-256-gcm", "password": "secret"})
    with haproxy(start, tmp_path, application) as (inner, heard):
        with serving(tmp_path / "watm", listener("shadowsocks.wasm", given, inner, version)) as running:
            socks = free_port()
            server = ["-s", HOST, "-p", running.port, "-k", "secret", "-m", "aes-256-gcm"]
            start("client", "ss-local", *server, "-l", socks)
            wait_for(lambda: listens(socks), (tmp_path / "client.log").read_text)
            assert fetch("http://[2001:db8::9]/1000", "--socks5", f"{HOST}:{socks}") == 1000
            heard(f"::ffff:{HOST} and 2001:db8::9")


def test_datagrams_name_a_client_of_another_family(tmp_path):
    ends = [ipaddress.ip_address(end).packed for end in (CLIENT, "::1")]
    rest = b"".join(ends) + struct.pack(">HH", 1234, 443)
    with datagrams(HOST) as upstream, datagrams(HOST) as near:
        with serving(tmp_path, config(HOST, of(upstream), 'proxy-header = "v2"')) as running:
            near.sendto(SIGNATURE + struct.pack(">BBH", 0x21, 0x22, len(rest)) + rest + b"hello", (HOST, running.port))
            said = upstream.recv(65536)
    assert said[:14] == SIGNATURE + b"\x21\x22"
    assert said[16 : 16 + len(rest)] == rest
    assert said.endswith(b"hello")


def test_tlvs_go_through_a_chain_as_they_came(tmp_path):
    """Checks a unique ID of arbitrary bytes, a namespace, unknown types, and TLS facts of another proxy."""
    ends = [ipaddress.ip_address(end).packed for end in ("192.0.2.1", "198.51.100.1")]
    tls = bytes([0x03]) + struct.pack(">I", 19) + b"\x22\0\x05alice"
    facts = [
        (0x05, bytes(range(100))),
        (0x30, b"ns1"),
        (0xEA, b"\x01vpce-1"),
        (0xE1, b""),
        (0x20, tls),
        (0x02, b"one.example"),
    ]
    tlvs = b"".join(struct.pack(">BH", kind, len(value)) + value for kind, value in facts)
    rest = b"".join(ends) + struct.pack(">HH", 1234, 443)
    sent = SIGNATURE + struct.pack(">BBH", 0x21, 0x12, len(rest + tlvs)) + rest + tlvs
    with datagrams(HOST) as upstream, datagrams(HOST) as near, contextlib.ExitStack() as stack:
        second = stack.enter_context(serving(tmp_path / "second", config(HOST, of(upstream), 'proxy-header = "v2"')))
        first = config(HOST, f"{HOST}:{second.port}", 'proxy-header = "v2"')
        first = stack.enter_context(serving(tmp_path / "first", first))
        near.sendto(sent + b"hello", (HOST, first.port))
        said = upstream.recv(65536)
    checksum = 7
    assert said[16 : -checksum - len(b"hello")] == rest + tlvs
    (length,) = struct.unpack(">H", said[14:16])
    assert length == len(rest + tlvs) + checksum


SHAPES = """
[[listener]]
module = "{module}"
config = 'from = "any"'
addresses = ["127.0.0.1:0"]
upstream = {upstream}
{more}
"""


@pytest.mark.parametrize(
    ("option", "upstream", "more"),
    [
        ("proxy-header", '"127.0.0.1:1"', 'proxy-header = "v2"'),
        ("transparent", '"127.0.0.1:1"', "transparent = {}"),
        ("upstream by family", '{ ipv4 = "127.0.0.1:1", ipv6 = "[::1]:1" }', ""),
        ("connections-per-client", '"127.0.0.1:1"', "[listener.limits]\nconnections-per-client = 5"),
        ('upstream = "dynamic"', '"dynamic"', 'allow = ["*:80"]'),
        ("decoy", '"127.0.0.1:1"', 'decoy = "127.0.0.1:2"'),
    ],
)
def test_what_a_water_module_cannot_tell_is_refused_at_the_start(option, upstream, more, tmp_path):
    file = tmp_path / "serve.toml"
    for check in (["--check"], []):
        module = MODULES / "proxy-protocol.watm1.wasm"
        file.write_text(SHAPES.format(module=module, upstream=upstream, more=more))
        command = [WATM, "serve", "--unsealed", *check, file]
        done = subprocess.run(command, capture_output=True, text=True, env={"HOME": HOME.name}, timeout=60)
        assert done.returncode == 2
        assert re.search(rf"listener 1: {re.escape(option)}: not supported by \S+/proxy-protocol\.watm1\.wasm: ", done.stderr)
        assert "use the component (proxy-protocol.wasm)" in done.stderr


@pytest.mark.parametrize("option", ["--transparent", "--decoy=127.0.0.1:2"])
def test_watm_listen_refuses_what_a_water_module_cannot_tell(option):
    module = MODULES / "proxy-protocol.watm1.wasm"
    command = [WATM, "listen", "--unsealed", module, f"{HOST}:0", "--forward", f"{HOST}:1", option]
    done = subprocess.run(command, capture_output=True, text=True, env={"HOME": HOME.name}, timeout=60)
    assert done.returncode == 2
    name = option.partition("=")[0]
    assert re.search(rf"{name}: not supported by \S+/proxy-protocol\.watm1\.wasm: .*use the component", done.stderr)

"""The parser of mode specifications."""

import json
import os
import stat
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import pytest

from mitmproxy_watm.cli import complete_arguments
from mitmproxy_watm.mode import instance, qr
from mitmproxy_watm.mode.config import build_config
from mitmproxy_watm.mode.keys import read_keys
from mitmproxy_watm.mode.mode import WatmMode
from mitmproxy_watm.mode.spec import complete, parse
from mitmproxy_watm.wireguard import genkey


def test_a_module_and_its_options():
    data = parse("/a/b.wasm?mtu=1280&dns=1.1.1.1&flag=true&keys=/k.json")
    assert (data.module, data.keys, data.config) == ("/a/b.wasm", Path("/k.json"), None)
    assert data.fields == {"mtu": 1280, "dns": "1.1.1.1", "flag": True}
    assert parse("x.wasm?transport=tcp").options.transport == "tcp"
    assert (parse("x.wasm").options.transport, parse("wireguard").options.transport) == (None, "udp")
    assert parse("/a%40b/100%25.wasm?config=/c%3fd").module == "/a@b/100%.wasm"
    assert parse("~/x.wasm?config=~/c").config == Path("~/c").expanduser()
    assert parse("x.wasm?config=/a+b").config == Path("/a+b")
    assert parse("x.wasm?record=~/life").options.record == Path("~/life").expanduser()
    assert parse("x.wasm").options.record is None
    data = parse("wireguard?pcap=~/a.pcapng&key_log=/b.keys")
    assert (data.options.pcap, data.options.key_log) == (Path("~/a.pcapng").expanduser(), Path("/b.keys"))
    assert (parse("wireguard").options.pcap, parse("wireguard").options.key_log) == (None, None)
    options = parse("wireguard?pcap=/a&pcap_size=64MiB&pcap_files=3").options
    assert (options.pcap_size, options.pcap_files) == (64 << 20, 3)
    for wrong in ("pcap_size=64", "pcap_size=64MB", "pcap_size=0KiB", "pcap_size=", "pcap_files=0", "pcap_files=many"):
        with pytest.raises(ValueError, match=f"option {wrong.partition('=')[0]}: .*must be a number above 0"):
            parse(f"wireguard?pcap=/a&{wrong}")


def test_a_module_tells_what_it_is(tmp_path):
    for name, title, port, transport, takes_keys in [
        ("wireguard", "WireGuard", 51820, "udp", True),
        ("shadowsocks", "Shadowsocks", 8388, "both", False),
        ("socks5", "SOCKS5", 1080, "both", False),
        ("plain", "Plain TCP", 51820, "tcp", False),
    ]:
        # mitmproxy parses a specification once.
        copy = tmp_path / f"corp-{port}-{transport}.wasm"
        copy.write_bytes((resources.files("mitmproxy_watm") / "modules" / f"{name}.wasm").read_bytes())
        for module in (name, str(copy)):
            mode = WatmMode.parse(f"watm:{module}")
            assert mode.description == f"{title} server"
            assert (mode.listen_port(), mode.transport_protocol, mode.parsed.takes_keys) == (port, transport, takes_keys)
    # The name of a file says nothing.
    for other in (tmp_path / "wireguard.wasm", tmp_path / "missing-wireguard.wasm"):
        if "missing" not in other.name:
            other.write_bytes(b"\0asm\1\0\0\0")
        mode = WatmMode.parse(f"watm:{other}")
        assert (mode.description, mode.parsed.takes_keys, mode.parsed.about) == (f"{other.stem} server", False, None)


def test_a_text_stays_one_though_it_looks_like_a_number():
    assert parse("shadowsocks?password=1234&server_port=1234").fields == {"password": "1234", "server_port": 1234}
    assert parse("x.wasm?password=1234").fields == {"password": 1234}


def test_where_connections_go():
    data = parse("x.wasm?to=example.com:443")
    assert (data.destination.address, data.destination.reverse) == (("example.com", 443), None)
    assert (data.options.transport, data.fields) == ("tcp", {})
    data = parse("plain?to=https://[::1]:8443")
    assert (data.destination.address, data.destination.reverse) == (("::1", 8443), "reverse:https://[::1]:8443")
    assert parse("reverse").options.transport == "tcp"
    assert parse("x.wasm").destination is None
    assert complete("x.wasm?to=example.com:443@8080") == "watm:x.wasm?to=example.com:443@8080"
    assert complete("x.wasm?to=https://example.com:443") == "watm:x.wasm?to=https://example.com:443"


def test_where_newer_modules_come_from():
    data = parse("wireguard?update=https://example.com/x.wasm&every=15m&mtu=1280")
    assert (data.options.updates.source, data.options.updates.every) == ("https://example.com/x.wasm", 900)
    assert (data.fields, data.watch) == ({"mtu": 1280}, False)
    data = parse("x.wasm?update=oci://registry.example/a:stable&update_name=team-a/x&update_channel=stable&update_ca=/ca.pem")
    assert (data.options.updates.name, data.options.updates.channel, data.options.updates.ca) == ("team-a/x", "stable", "/ca.pem")
    assert not data.options.updates.plain_http
    assert parse("x.wasm?update=oci://127.0.0.1:5000/a:stable&update_plain_http=on").options.updates.plain_http
    assert (data.options.updates.every, data.watch) == (3600, False)
    assert parse("x.wasm").options.updates is None and parse("x.wasm").watch
    assert parse("x.wasm?every=often").fields == {"every": "often"}
    digest = "sha256:" + 64 * "0"
    pinned = f"x.wasm?update=oci://registry.example/a@{digest}"
    assert complete(pinned) == f"watm:{pinned.replace('@', '%40')}"
    assert parse(complete(pinned).removeprefix("watm:")).options.updates.source == f"oci://registry.example/a@{digest}"
    assert complete(f"{pinned}@51820") == f"watm:{pinned}@51820"


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ("", "module"),
        ("x.conf", "module"),
        ("x.wasm?mtu", "mtu"),
        ("x.wasm?mtu=1&mtu=2", "mtu"),
        ("x.wasm?transport=sctp", "transport"),
        ("x.wasm?config=a&keys=b", "config"),
        ("x.wasm?to=example.com", "option to"),
        ("x.wasm?to=example.com:0", "option to"),
        ("x.wasm?to=:80", "option to"),
        ("x.wasm?to=dns://example.com:53", "option to"),
        ("x.wasm?update=", "option update"),
        ("x.wasm?update=y.wasm&every=5", "option every"),
        ("x.wasm?update=y.wasm&every=0s", "option every"),
        ("x.wasm?update=y.wasm&watch=on", "watch and update"),
        ("x.wasm?update_name=x", "option update_name"),
        ("x.wasm?update_plain_http=on", "option update_plain_http"),
        ("x.wasm?update=oci://r/a:b&update_plain_http=yes", "option update_plain_http"),
        ("x.wasm?update=y.wasm&update_credentials=/nowhere/secret", "option update_credentials"),
    ],
)
def test_errors_name_the_part(data, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse(data)


@pytest.mark.parametrize(
    ("given", "completed"),
    [
        ("wireguard", "watm:wireguard"),
        ("watm:wireguard@51820", "watm:wireguard@51820"),
        ("wireguard@127.0.0.1:51820", "watm:wireguard@127.0.0.1:51820"),
        ("wireguard@[::1]:51820", "watm:wireguard@[::1]:51820"),
        ("wireguard@::1:51820", "watm:wireguard@::1:51820"),
        ("/a@b/x.wasm", "watm:/a%40b/x.wasm"),
        ("/a@b/x.wasm@51820", "watm:/a@b/x.wasm@51820"),
        ("/home/me@2/x.wasm?config=/c@d/e.conf", "watm:/home/me%402/x.wasm?config=/c%40d/e.conf"),
    ],
)
def test_completion_tells_addresses_from_paths(given, completed):
    assert complete(given) == completed
    assert complete(completed) == completed


def test_arguments_of_the_programs_are_completed_where_they_hold_a_specification():
    given = ["-m", "watm:/a@b.wasm", "--mode=watm:/a@b.wasm", "--set", "mode=watm:/a@b.wasm", "-w", "watm@file", "regular@1"]
    assert complete_arguments(given) == [
        "-m",
        "watm:/a%40b.wasm",
        "--mode=watm:/a%40b.wasm",
        "--set",
        "mode=watm:/a%40b.wasm",
        "-w",
        "watm@file",
        "regular@1",
    ]


def test_keys_are_made_once_for_their_owner_alone(tmp_path):
    path = tmp_path / "new" / "wireguard.conf"
    previous = os.umask(0)
    try:
        keys = read_keys(path)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()) == keys
    assert read_keys(path) == keys
    assert [entry.name for entry in path.parent.iterdir()] == ["wireguard.conf"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"server_key": "x", "client_key": "y"}'])
def test_a_file_without_keys_is_refused_by_its_name(content, tmp_path):
    path = tmp_path / "wireguard.conf"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"Invalid configuration file \(.*wireguard.conf\)"):
        read_keys(path)
    assert path.read_text() == content
    with pytest.raises(ValueError, match="Invalid configuration file"):
        read_keys(tmp_path)


def test_keys_that_others_can_read_are_warned_of(tmp_path, caplog):
    path = tmp_path / "wireguard.conf"
    read_keys(path)
    assert not caplog.records
    path.chmod(0o644)
    read_keys(path)
    assert "chmod 600" in caplog.text


def test_the_configuration_of_a_module(tmp_path):
    keys = json.loads(build_config(parse("wireguard"), tmp_path))
    assert keys == json.loads((tmp_path / "wireguard.conf").read_text())
    assert json.loads(build_config(parse("wireguard?mtu=1280"), tmp_path)) == keys | {"mtu": 1280}
    assert build_config(parse("plain.wasm"), tmp_path) == b""
    assert json.loads(build_config(parse("plain.wasm?key=x"), tmp_path)) == {"key": "x"}
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"server_key": genkey(), "client_key": genkey()}))
    assert json.loads(build_config(parse(f"wireguard?keys={other}&mtu=1400"), tmp_path))["mtu"] == 1400
    quick = tmp_path / "wg0.conf"
    quick.write_text("[Interface]\n")
    assert build_config(parse(f"wireguard?config={quick}"), tmp_path) == b"[Interface]\n"
    with pytest.raises(ValueError, match="mtu.*wg0.conf"):
        build_config(parse(f"wireguard?config={quick}&mtu=1280"), tmp_path)
    with pytest.raises(FileNotFoundError):
        build_config(parse(f"wireguard?config={tmp_path}/absent"), tmp_path)


def test_announcements_are_for_terminals_of_any_configuration(monkeypatch):
    monkeypatch.setattr(instance, "_shows_blocks", lambda: True)
    short = instance._announcement(SimpleNamespace(content="[Interface]\n\tAddress = \x1b]0;title\x07\x9b31m"))
    assert "[Interface]\n\tAddress = \ufffd]0;title\ufffd\ufffd31m" in short and "█" in short
    for long in ("a" * 3000, "🔒" * 1000, "a" * 10_000_000):
        assert instance._announcement(SimpleNamespace(content=long)).endswith(f"{qr.TOO_LONG}\n{instance.RULE}")

"""Checks the permitted dependencies: transports do not depend on the host, nor the host on transports."""

import json
import subprocess
from functools import cache

import pytest

from watm_test_support.repository import ROOT

WASM = {'cfg(target_family = "wasm")', 'cfg(any(target_family = "wasm", miri))'}

# Each crate of the project, and the crates of the project that it may use. `wasm` marks a
# dependency that is allowed only under `cfg(target_family = "wasm")`, or in Miri too.
TRANSPORTS = {
    "watm-core": {},
    "watm-schema": {},
    "watm-proxy-header": {},
    "watm-socks-wire": {},
    "watm-netem": {"watm-schema": "always"},
    "watm-netstack": {"watm-core": "always"},
    "watm-wireguard": {
        "watm-core": "always",
        "watm-schema": "always",
        "watm-netem": "always",
        "watm-netstack": "always",
        "watm-stream": "always",
        "watm-guest": "wasm",
        "watm-guest-v1": "wasm",
    },
    "watm-stream": {"watm-core": "always", "watm-schema": "always"},
    "watm-proxy-protocol": {
        "watm-core": "always",
        "watm-proxy-header": "always",
        "watm-schema": "always",
        "watm-stream": "always",
        "watm-guest": "wasm",
        "watm-guest-v1": "wasm",
    },
    "watm-plain": {
        "watm-core": "always",
        "watm-schema": "always",
        "watm-stream": "always",
        "watm-guest": "wasm",
        "watm-guest-v1": "wasm",
    },
    "watm-reverse": {
        "watm-core": "always",
        "watm-schema": "always",
        "watm-stream": "always",
        "watm-guest": "wasm",
        "watm-guest-v1": "wasm",
    },
    "watm-shadowsocks": {
        "watm-core": "always",
        "watm-schema": "always",
        "watm-stream": "always",
        "watm-guest": "wasm",
        "watm-guest-v1": "wasm",
    },
    "watm-socks5": {
        "watm-core": "always",
        "watm-schema": "always",
        "watm-socks-wire": "always",
        "watm-stream": "always",
        "watm-guest": "wasm",
        "watm-guest-v1": "wasm",
    },
    "watm-tun": {
        "watm-core": "always",
        "watm-netem": "always",
        "watm-netstack": "always",
        "watm-schema": "always",
        "watm-guest": "wasm",
    },
    "watm-guest": {"watm-core": "always"},
    "watm-guest-v1": {"watm-core": "wasm", "watm-stream": "wasm"},
    "watm-componentize": {},
    "watm-native": {"watm-core": "always", "watm-wireguard": "always"},
    "watm-fuzz-transports": {
        "watm-core": "always",
        "watm-netstack": "always",
        "watm-proxy-protocol": "always",
        "watm-shadowsocks": "always",
        "watm-socks-wire": "always",
        "watm-socks5": "always",
        "watm-stream": "always",
        "watm-tun": "always",
        "watm-wireguard": "always",
    },
    # Stand-ins for crates of these names; see watm/Cargo.toml.
    "ring": {"watm-core": "always"},
    "getrandom": {},
}
# A workspace of its own, where `ring` comes from the registry.
TLS = {
    "watm-tls": {
        "watm-core": "always",
        "watm-schema": "always",
        "watm-stream": "always",
        "watm-proxy-header": "always",
        "watm-proxy-protocol": "always",
        "watm-guest": "wasm",
        "watm-guest-v1": "wasm",
    },
    "watm-fuzz-tls": {"watm-core": "always", "watm-stream": "always", "watm-tls": "always"},
}
HOST = {
    "watm-types": {},
    "watm-seal": {"watm-types": "always"},
    "watm-update": {"watm-seal": "always"},
    "watm-socks": {"watm-types": "always", "watm-socks-wire": "always"},
    "watm-net": {"watm-types": "always", "watm-socks": "always"},
    "watm-policy": {"watm-types": "always", "watm-net": "always", "watm-seal": "always", "watm-update": "always"},
    "watm-engine": {"watm-types": "always", "watm-net": "always", "watm-policy": "always", "watm-seal": "always"},
    "watm-component": {
        "watm-types": "always",
        "watm-net": "always",
        "watm-policy": "always",
        "watm-seal": "always",
        "watm-engine": "always",
    },
    "watm-water": {"watm-types": "always", "watm-net": "always", "watm-policy": "always", "watm-engine": "always"},
    "watm-wasi": {"watm-types": "always", "watm-net": "always", "watm-policy": "always", "watm-engine": "always"},
    "watm-runtime": {
        "watm-types": "always",
        "watm-net": "always",
        "watm-policy": "always",
        "watm-engine": "always",
        "watm-component": "always",
        "watm-wasi": "always",
        "watm-water": "always",
        "watm-seal": "always",
        "watm-socks": "always",
        "watm-update": "always",
    },
    "watm-launch": {},
    "watm-sealing": {"watm-types": "always", "watm-seal": "always", "watm-policy": "always"},
    "watm-seal-packaged": {"watm-policy": "always", "watm-seal": "always", "watm-sealing": "always"},
    "watm": {
        "watm-launch": "always",
        "watm-runtime": "always",
        "watm-proxy-header": "always",
        "watm-schema": "always",
        "watm-seal": "always",
        "watm-sealing": "always",
        "watm-socks": "always",
        "watm-update": "always",
    },
    "watm-test-support": {"watm-runtime": "always"},
    "watm-python": {"watm-launch": "always", "watm-runtime": "always", "watm-socks": "always"},
    "watm-fuzz-host": {"watm": "always", "watm-runtime": "always"},
    "watm-fuzz-network": {"watm-seal": "always", "watm-socks": "always", "watm-update": "always"},
    "watm-fuzz-seal": {"watm-seal": "always"},
}
# The host must not use the libraries of its modules, and no transport may do input or output.
INPUT_OUTPUT = {"tokio", "wasmtime", "socket2", "mio"}
FORBIDDEN = {
    "watm-types": INPUT_OUTPUT,
    # Other programs verify seals without the runtime.
    "watm-seal": INPUT_OUTPUT,
    # It delivers modules and does not run them.
    "watm-update": {"wasmtime", "watm-runtime"},
    # It serves any dialer, so it does not depend on one.
    "watm-socks": {"wasmtime", "watm-runtime"},
    # It decides before anything is compiled.
    "watm-policy": {"wasmtime"},
    # The wheel's modules are sealed before wasmtime is built.
    "watm-launch": {},
    "watm-sealing": {"wasmtime", "watm-runtime"},
    "watm-seal-packaged": {"wasmtime", "watm-runtime"},
    # It moves bytes, and does not depend on the kind of module.
    "watm-net": {"wasmtime", "watm-seal"},
    # Programs that embed the runtime choose these crates themselves.
    "watm-runtime": {"boringtun", "smoltcp", "clap", "hyper", "prometheus-client"},
    "watm-python": {"boringtun", "smoltcp", "wasmtime"},
    "watm-core": INPUT_OUTPUT,
    "watm-schema": INPUT_OUTPUT,
    "watm-proxy-header": INPUT_OUTPUT,
    "watm-netstack": INPUT_OUTPUT,
    "watm-stream": INPUT_OUTPUT,
    "watm-plain": INPUT_OUTPUT,
    "watm-proxy-protocol": INPUT_OUTPUT,
    "watm-reverse": INPUT_OUTPUT,
    "watm-shadowsocks": INPUT_OUTPUT,
    "watm-socks-wire": INPUT_OUTPUT,
    "watm-socks5": INPUT_OUTPUT,
    "watm-tls": INPUT_OUTPUT,
    "watm-wireguard": INPUT_OUTPUT,
    "watm-guest": INPUT_OUTPUT,
    "watm-guest-v1": INPUT_OUTPUT,
}


@cache
def packages(workspace: str) -> dict[str, dict]:
    """Returns the members of a cargo workspace, by name."""
    output = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps", "--manifest-path", ROOT / workspace / "Cargo.toml"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    return {package["name"]: package for package in json.loads(output)["packages"]}


@pytest.mark.parametrize(("workspace", "rule"), [("watm", TRANSPORTS), ("watm/tls", TLS), (".", HOST)])
def test_every_crate_has_a_rule(workspace, rule):
    assert packages(workspace).keys() == rule.keys()


@pytest.mark.parametrize(
    ("workspace", "name", "allowed"),
    [("watm", name, allowed) for name, allowed in TRANSPORTS.items()]
    + [("watm/tls", name, allowed) for name, allowed in TLS.items()]
    + [(".", name, allowed) for name, allowed in HOST.items()],
)
def test_crate_depends_on_what_its_rule_allows(workspace, name, allowed):
    ours = TRANSPORTS.keys() | TLS.keys() | HOST.keys()
    stand_ins = {"ring", "getrandom"}
    for dependency in packages(workspace)[name]["dependencies"]:
        used = dependency["name"]
        if dependency["kind"] == "dev":
            continue
        assert used not in FORBIDDEN.get(name, set()), f"{name} must not use {used}"
        # Outside `watm/`, and for versions of the registry, these names are the real crates.
        if used not in ours or (used in stand_ins and "path" not in dependency):
            continue
        assert used in allowed, f"{name} must not use {used}"
        if allowed[used] == "wasm":
            assert dependency["target"] in WASM, f"{name} uses {used} on every target"


def test_workspaces_do_not_reach_into_each_other():
    for workspace, others in (("watm", HOST), ("watm/tls", HOST), (".", TRANSPORTS | TLS)):
        for package in packages(workspace).values():
            paths = {d["name"] for d in package["dependencies"] if "path" in d}
            # Both sides use configuration fields, PROXY headers and messages of SOCKS5, which are no transports.
            shared = {"watm-schema", "watm-proxy-header", "watm-socks-wire"}
            assert not paths & (others.keys() - shared), f"{package['name']} crosses the boundary of wit/"


def test_a_crate_for_others_uses_no_crate_that_is_not() -> None:
    everything = packages(".") | packages("watm")
    # `packaging/crates.sh` packs these too, though the others of their workspace are not for others.
    packed = {"watm-schema", "watm-proxy-header", "watm-socks-wire"}
    shared = {name for name, package in everything.items() if package["publish"] is None} | packed
    assert "watm" in shared
    for name in shared:
        uses = {d["name"] for d in everything[name]["dependencies"] if d["kind"] != "dev" and "path" in d}
        assert uses <= shared, name

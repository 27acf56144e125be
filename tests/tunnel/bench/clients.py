"""The clients that are compared, each a process with one forwarded TCP port."""

import contextlib
import os
import pathlib
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from watm_test_support.ports import free_port
from watm_test_support.repository import MODULES, WATM
from watm_test_support.spaces import ROOT, Space, run, spaces, wireguard_go
from watm_test_support.wgclient import BINARY

WIREGUARD = MODULES / "wireguard.wasm"
ONETUN = ROOT / "build" / "tools" / "bin" / "onetun"
HERE = "127.0.0.1"
# The address of the other end of every tunnel, and the port of its wireguard-go.
INSIDE, SERVER_PORT = "10.7.0.1", 51820
MTU = 1420
# With CUBIC, which is the default, and with BBR.
OURS = "watm"
OURS_BBR = "watm, BBR"
# wireguard-go with its own `tun/netstack`, unchanged.
WIREGUARD_GO = "wireguard-go"
NETSTACK = ROOT / "build" / "netstack"
# wireguard-go with gVisor's TCP as `wgclient` configures it, without RACK.
NO_RACK = "gVisor without RACK"
CLIENTS = (OURS, OURS_BBR, "onetun", WIREGUARD_GO, NO_RACK)
# The kernel's own TCP over wireguard-go's interface: the reference for the path.
KERNEL = "kernel"
# The same with BBR for what the client sends.
KERNEL_BBR = "kernel, BBR"
REFERENCES = (KERNEL, KERNEL_BBR)
# The congestion control of the kernel's TCP at both ends.
CONGESTION = "cubic"
# Seconds until a program must be ready.
_READY = 20


@dataclass(frozen=True)
class Tunnel:
    """The configuration of a client: keys, addresses, and the server's port on this machine."""

    private_key: str
    server_key: str
    address: str
    endpoint: int


@dataclass(frozen=True)
class Client:
    """A running client: the address to connect to, and its process if it has one of its own."""

    port: int
    process: subprocess.Popen | None
    host: str = HERE

    def used(self) -> float | None:
        """Returns the CPU seconds that it has used, user and system."""
        if self.process is None:
            return None
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def client(kind: str, space: Space, tunnel: Tunnel, to: str, folder: pathlib.Path) -> Iterator[Client]:
    """Runs a client whose port leads to `to` inside the tunnel, for the length of the block."""
    if kind in REFERENCES:
        control = _congestion(space, "bbr") if kind == KERNEL_BBR else contextlib.nullcontext()
        with control, _kernel(space, tunnel, to) as one:
            yield one
        return
    port = free_port()
    process = subprocess.Popen(
        space.command(*_COMMANDS[kind](tunnel, port, to, folder)),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(space, process, port)
        yield Client(port, process)
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def served(kinds: Iterable[str], congestion: str | None = None) -> Iterator[tuple[Space, Space, dict[str, Tunnel]]]:
    """Runs wireguard-go. Yields the namespaces of its clients and of the services inside, where the
    kernel's TCP has this congestion control, or the machine's default. Each client has a key of its
    own, because implementations disagree on leap seconds in the timestamps of handshakes, and a
    server refuses a timestamp before the last.
    """
    theirs = run("wg", "genkey").strip()
    config = f"[Interface]\nPrivateKey = {theirs}\nListenPort = {SERVER_PORT}\n"
    server_key = run("wg", "pubkey", stdin=theirs).strip()
    tunnels = {}
    for number, kind in enumerate(kinds):
        ours, address = run("wg", "genkey").strip(), f"10.7.0.{number + 2}"
        config += f"[Peer]\nPublicKey = {run('wg', 'pubkey', stdin=ours).strip()}\nAllowedIPs = {address}/32\n"
        tunnels[kind] = Tunnel(ours, server_key, address, SERVER_PORT)
    with spaces(2) as (near, far), wireguard_go(near, far, config, [f"{INSIDE}/24"], MTU):
        for space in (near, far):
            if congestion is not None:
                space.run("sysctl", "-qw", f"net.ipv4.tcp_congestion_control={congestion}")
        yield near, far, tunnels


@contextlib.contextmanager
def _congestion(space: Space, name: str) -> Iterator[None]:
    """Has connections of the namespace use a congestion control, for the length of the block."""
    setting = "net.ipv4.tcp_congestion_control"
    before = space.run("sysctl", "-n", setting).strip()
    space.run("sysctl", "-qw", f"{setting}={name}")
    try:
        yield
    finally:
        space.run("sysctl", "-qw", f"{setting}={before}")


@contextlib.contextmanager
def _kernel(space: Space, tunnel: Tunnel, to: str) -> Iterator[Client]:
    """Yields a client without a forwarded port: programs connect to the end of the tunnel directly."""
    host, _, port = to.rpartition(":")
    config = (
        f"[Interface]\nPrivateKey = {tunnel.private_key}\n"
        f"[Peer]\nPublicKey = {tunnel.server_key}\nAllowedIPs = {host}/32\nEndpoint = {HERE}:{tunnel.endpoint}\n"
    )
    with wireguard_go(space, space, config, [f"{tunnel.address}/32"]) as name:
        space.run("ip", "route", "add", f"{host}/32", "dev", name)
        yield Client(int(port), None, host)


def _watm(tunnel: Tunnel, port: int, to: str, folder: pathlib.Path, *, congestion: str = "cubic") -> list:
    config = folder / "client.conf"
    config.write_text(
        f"[Interface]\nPrivateKey = {tunnel.private_key}\nAddress = {tunnel.address}/32\n"
        f"[Peer]\nPublicKey = {tunnel.server_key}\nAllowedIPs = 0.0.0.0/0\n"
        f"Endpoint = {HERE}:{tunnel.endpoint}\n"
        f"[Watm]\nCongestionControl = {congestion}\n"
    )
    command = [WATM, "dial", "--unsealed", WIREGUARD, "--state", folder / "state.json", "--config", config]
    command += ["--allow", f"udp://{HERE}:{tunnel.endpoint}"]
    return [*command, "--udp", "--forward", f"tcp:{HERE}:{port}={to}"]


def _watm_bbr(tunnel: Tunnel, port: int, to: str, folder: pathlib.Path) -> list:
    return _watm(tunnel, port, to, folder, congestion="bbr")


def _onetun(tunnel: Tunnel, port: int, to: str, _: pathlib.Path) -> list:
    command = [ONETUN, f"{HERE}:{port}:{to}", "--endpoint-addr", f"{HERE}:{tunnel.endpoint}", "--log", "error"]
    command += ["--endpoint-public-key", tunnel.server_key, "--private-key", tunnel.private_key]
    return [*command, "--source-peer-ip", tunnel.address]


def _wireguard_go(*arguments) -> list:
    return [NETSTACK, *_go_options(*arguments)]


def _no_rack(*arguments) -> list:
    return [BINARY, "forward", "--timeout", "0", *_go_options(*arguments)]


def _go_options(tunnel: Tunnel, port: int, to: str, _: pathlib.Path) -> list:
    command = ["--server", f"{HERE}:{tunnel.endpoint}", "--to", to]
    command += ["--private-key", tunnel.private_key, "--peer-public-key", tunnel.server_key]
    return [*command, "--address", tunnel.address, "--listen", f"{HERE}:{port}"]


_COMMANDS = {OURS: _watm, OURS_BBR: _watm_bbr, "onetun": _onetun, WIREGUARD_GO: _wireguard_go, NO_RACK: _no_rack}


def _wait_for(space: Space, process: subprocess.Popen, port: int) -> None:
    """Waits until a program listens on the port."""
    end = time.monotonic() + _READY
    while f":{port} " not in space.run("ss", "-Hltn"):
        assert process.poll() is None, f"ended with {process.returncode}"
        assert time.monotonic() < end, "does not listen"
        time.sleep(0.05)

"""Network namespaces with wireguard-go in them. The machine's own network stays untouched."""

import contextlib
import os
import pathlib
import secrets
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

from watm_test_support import needs
from watm_test_support.repository import ROOT

WIREGUARD_GO = ROOT / "build" / "tools" / "bin" / "wireguard"
BORINGTUN = ROOT / "build" / "peers" / "bin" / "boringtun-cli"
# Seconds until wireguard-go must have its interface.
_START = 10


def run(*command: str | pathlib.Path, stdin: str | None = None) -> str:
    """Runs a program to its end and returns its output. A failure contains its error output."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}"
    return done.stdout


@dataclass(frozen=True)
class Space:
    """A namespace, known by its name."""

    name: str

    def command(self, *command: str | pathlib.Path) -> list[str]:
        """Returns the command that runs another one in it."""
        return ["ip", "netns", "exec", self.name, *map(str, command)]

    def run(self, *command: str | pathlib.Path, stdin: str | None = None) -> str:
        """Does the same as the function `run`, in the namespace."""
        return run(*self.command(*command), stdin=stdin)

    def configure(self, interface: str, addresses: list[str], mtu: int) -> None:
        """Brings up an interface in it."""
        for address in addresses:
            self.run("ip", "address", "add", address, "dev", interface, *(["nodad"] if ":" in address else []))
        self.run("ip", "link", "set", interface, "mtu", str(mtu), "up")


@contextlib.contextmanager
def spaces(count: int) -> Iterator[list[Space]]:
    """Makes `count` namespaces, each with its own loopback, and removes them at the end of the block."""
    needs.root("network namespaces")
    prefix = f"watm{secrets.token_hex(4)}"
    with contextlib.ExitStack() as stack:
        made = []
        for number in range(count):
            space = Space(f"{prefix}{number}")
            run("ip", "netns", "add", space.name)
            stack.callback(subprocess.run, ["ip", "netns", "delete", space.name], check=False, timeout=60)
            space.run("ip", "link", "set", "lo", "up")
            made.append(space)
        yield made


def interface_name() -> str:
    """Returns an unused name of at most 15 characters, the kernel's limit."""
    return f"watm{secrets.token_hex(4)}"


@contextlib.contextmanager
def wireguard_go(
    outer: Space,
    inner: Space,
    config: str,
    addresses: list[str],
    mtu: int = 1420,
    program: tuple[pathlib.Path | str, ...] = (WIREGUARD_GO,),
) -> Iterator[str]:
    """Runs wireguard-go with a configuration in wg(8)'s format for the length of the block: its
    datagrams are in `outer`, its interface in `inner`. Yields the interface's name. Another program
    with the same configuration can replace it, such as boringtun-cli.
    """
    assert program[0].exists(), f"{program[0]} is missing: make {program[0].relative_to(ROOT)}"
    name = interface_name()
    environment = {**os.environ, "LOG_LEVEL": "error", "WG_LOG_LEVEL": "error"}
    # Its first output is an irrelevant note on kernels with WireGuard.
    command = outer.command(*program, "-f", name)
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        socket = pathlib.Path("/var/run/wireguard") / f"{name}.sock"
        end = time.monotonic() + _START
        while not socket.exists():
            assert process.poll() is None, f"wireguard-go ended with {process.returncode}"
            assert time.monotonic() < end, f"wireguard-go made no {socket} within {_START} s"
            time.sleep(0.02)
        outer.run("wg", "setconf", name, "/dev/stdin", stdin=config)
        if outer != inner:
            outer.run("ip", "link", "set", name, "netns", inner.name)
        inner.configure(name, addresses, mtu)
        yield name
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

"""Two network namespaces: in one our server and wireguard-go, in the other wireguard-go's
interface alone, so that everything there goes through the tunnel. The machine's own network
is not touched."""

import contextlib
import os
import pathlib
import secrets
import subprocess
import time
from collections.abc import Iterator

from conftest import ROOT

WIREGUARD_GO = ROOT / "build" / "tools" / "bin" / "wireguard"
_START = 10


def run(*command: str | pathlib.Path, stdin: str | None = None) -> str:
    """Runs a program to its end and returns what it prints; a failure says what it said."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}"
    return done.stdout


class Namespaces:
    """Use `namespaces`."""

    def __init__(self) -> None:
        # At most 15 characters, the kernel's limit for an interface's name.
        self.name = f"watm{secrets.token_hex(4)}"
        self.outer, self.inner = f"{self.name}o", f"{self.name}i"

    def command(self, namespace: str, *command: str | pathlib.Path) -> list[str]:
        """The command, to be run in one of the namespaces."""
        return ["ip", "netns", "exec", namespace, *map(str, command)]

    def inside(self, *command: str | pathlib.Path, stdin: str | None = None) -> str:
        """Runs a program where only the tunnel leads out."""
        return run(*self.command(self.inner, *command), stdin=stdin)

    @contextlib.contextmanager
    def wireguard(self, config: str, addresses: list[str], mtu: int = 1420) -> Iterator[None]:
        """Runs wireguard-go with a configuration in wg(8)'s format for the length of the block."""
        environment = {**os.environ, "LOG_LEVEL": "error"}
        command = self.command(self.outer, WIREGUARD_GO, "-f", self.name)
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
        try:
            socket = pathlib.Path("/var/run/wireguard") / f"{self.name}.sock"
            end = time.monotonic() + _START
            while not socket.exists():
                assert process.poll() is None, f"wireguard-go ended with {process.returncode}"
                assert time.monotonic() < end, f"wireguard-go made no {socket} within {_START} s"
                time.sleep(0.02)
            run(*self.command(self.outer, "wg", "setconf", self.name, "/dev/stdin"), stdin=config)
            run(*self.command(self.outer, "ip", "link", "set", self.name, "netns", self.inner))
            for address in addresses:
                self.inside("ip", "address", "add", address, "dev", self.name)
            self.inside("ip", "link", "set", self.name, "mtu", str(mtu), "up")
            for family in ("-4", "-6"):
                self.inside("ip", family, "route", "add", "default", "dev", self.name)
            yield
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def namespaces() -> Iterator[Namespaces]:
    """Makes both and removes them at the end of the block."""
    assert os.geteuid() == 0, "network namespaces need root"
    assert WIREGUARD_GO.exists(), f"{WIREGUARD_GO} is missing: make {WIREGUARD_GO.relative_to(ROOT)}"
    made = Namespaces()
    with contextlib.ExitStack() as stack:
        for name in (made.outer, made.inner):
            run("ip", "netns", "add", name)
            stack.callback(subprocess.run, ["ip", "netns", "delete", name], check=False)
            run("ip", "-n", name, "link", "set", "lo", "up")
        yield made

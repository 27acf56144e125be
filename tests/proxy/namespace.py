"""A network namespace that routes answers to clients' addresses back, and sockets in it. The
machine's own network stays unchanged.
"""

import contextlib
import os
import secrets
import socket as sockets
import subprocess
from collections.abc import Iterator

from watm_test_support import needs

# Seconds for one step.
LIMIT = 10
TABLE = "123"

RULES = (
    ("-4", "rule", "add", "from", "127.0.0.0/8", "iif", "lo", "table", TABLE),
    ("-4", "route", "add", "local", "0.0.0.0/0", "dev", "lo", "table", TABLE),
    ("-6", "rule", "add", "from", "::1/128", "iif", "lo", "table", TABLE),
    ("-6", "route", "add", "local", "::/0", "dev", "lo", "table", TABLE),
)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, timeout=LIMIT, capture_output=True)


class Namespace:
    """A network namespace. Use `namespace`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def command(self, *command) -> list[str]:
        """Returns the command that runs another one inside."""
        return ["ip", "netns", "exec", self.name, *map(str, command)]

    def counter(self, group: str, name: str) -> int:
        """Returns a counter of the kernel, from a line of names and a line of numbers."""
        text = subprocess.check_output(self.command("cat", "/proc/net/netstat"), text=True, timeout=60)
        names, numbers = (line.split() for line in text.splitlines() if line.startswith(f"{group}:"))
        return int(numbers[names.index(name)])

    def bring_answers_back(self) -> None:
        """Sets the rules of mmproxy's README."""
        for rule in RULES:
            ip("-n", self.name, *rule)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Moves this thread into the namespace for the length of the block."""
        with open(f"/var/run/netns/{self.name}") as there, open("/proc/thread-self/ns/net") as home:
            os.setns(there.fileno(), os.CLONE_NEWNET)
            try:
                yield
            finally:
                os.setns(home.fileno(), os.CLONE_NEWNET)

    def socket(self, address: str, kind: sockets.SocketKind) -> sockets.socket:
        """Makes a socket of this address's family, with a time limit for each step."""
        family = sockets.AF_INET6 if ":" in address else sockets.AF_INET
        with self.inside():
            made = sockets.socket(family, kind)
        made.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        made.settimeout(LIMIT)
        return made

    def bound(self, address: str, port: int, kind: sockets.SocketKind) -> sockets.socket:
        """Makes a socket that is bound to this address. A TCP socket listens."""
        made = self.socket(address, kind)
        made.bind((address, port))
        if kind == sockets.SOCK_STREAM:
            made.listen(256)
        return made

    def connected(self, address: str, port: int, kind=sockets.SOCK_STREAM) -> sockets.socket:
        made = self.socket(address, kind)
        made.connect((address, port))
        return made


@contextlib.contextmanager
def namespace() -> Iterator[Namespace]:
    """Creates a namespace and removes it at the end of the block."""
    needs.root("network namespaces")
    made = Namespace(f"watm{secrets.token_hex(4)}")
    ip("netns", "add", made.name)
    try:
        ip("-n", made.name, "link", "set", "lo", "up")
        yield made
    finally:
        ip("netns", "delete", made.name)

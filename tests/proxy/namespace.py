"""A network namespace of a test's own, in which answers to clients' addresses come back, and sockets
in it. The machine's own network is not touched."""

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
    """Use `namespace`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def command(self, *command) -> list[str]:
        """The command, to be run inside."""
        return ["ip", "netns", "exec", self.name, *map(str, command)]

    def counter(self, group: str, name: str) -> int:
        """A count of the kernel's, from a line of names and one of numbers."""
        text = subprocess.check_output(self.command("cat", "/proc/net/netstat"), text=True, timeout=60)
        names, numbers = (line.split() for line in text.splitlines() if line.startswith(f"{group}:"))
        return int(numbers[names.index(name)])

    def bring_answers_back(self) -> None:
        """Sets the rules that mmproxy's README asks for."""
        for rule in RULES:
            ip("-n", self.name, *rule)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """This thread is in the namespace."""
        with open(f"/var/run/netns/{self.name}") as there, open("/proc/thread-self/ns/net") as home:
            os.setns(there.fileno(), os.CLONE_NEWNET)
            try:
                yield
            finally:
                os.setns(home.fileno(), os.CLONE_NEWNET)

    def socket(self, address: str, kind: sockets.SocketKind) -> sockets.socket:
        """One for this address' family, with a limit for every step."""
        family = sockets.AF_INET6 if ":" in address else sockets.AF_INET
        with self.inside():
            made = sockets.socket(family, kind)
        made.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        made.settimeout(LIMIT)
        return made

    def bound(self, address: str, port: int, kind: sockets.SocketKind) -> sockets.socket:
        """One that is bound there, and listens if it is for connections."""
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
    """Makes one and removes it at the end of the block."""
    needs.root("network namespaces")
    made = Namespace(f"watm{secrets.token_hex(4)}")
    ip("netns", "add", made.name)
    try:
        ip("-n", made.name, "link", "set", "lo", "up")
        yield made
    finally:
        ip("netns", "delete", made.name)

"""The process behind a connection that came from a device, from Linux's `/proc`, for addons.

`instance` asks for it when a connection arrives, and `addon` writes it into flows.
"""

import ipaddress
import itertools
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

from mitmproxy.connection import Client
from mitmproxy.flow import Flow

PROCESS = "watm_process"
PID = "watm_pid"

MOST_KNOWN = 8
"""The most processes that a network remembers."""

MOST_SAVED = 1.0
"""The most seconds that a network saves up for its searches."""

OWN_NETWORK = Path("/proc/self/ns/net")
"""The network namespace of mitmproxy."""

SHARE = 0.1
"""The share of time that searches may take, so that a program with thousands of connections delays no other one."""


@dataclass(frozen=True)
class Process:
    """A process of this machine."""

    name: str
    """The name of its program, of at most 15 characters."""
    pid: int


def process(of: Flow | Client) -> Process | None:
    """Returns the process behind a flow or a client connection of a device, such as that of `exec`.

    None if another way brought it here, if it comes from another machine, or if its socket was gone already. Works for saved and loaded flows too:
    `flow.metadata` keeps it, as "watm_process" and "watm_pid".
    """
    client = of.client_conn if isinstance(of, Flow) else of
    found = _processes.get(client)
    if found is None and isinstance(of, Flow) and PROCESS in of.metadata:
        return Process(of.metadata[PROCESS], of.metadata[PID])
    return found


def remember_process(client: Client, found: Process | None) -> None:
    """Remember the process of a connection, for as long as `client` is in use."""
    if found is not None:
        _processes[client] = found


def annotate_process(flow: Flow) -> None:
    """Write the process into a flow's metadata."""
    found = _processes.get(flow.client_conn)
    if found is not None:
        flow.metadata[PROCESS], flow.metadata[PID] = found.name, found.pid


_processes: WeakKeyDictionary[Client, Process] = WeakKeyDictionary()


class Sockets:
    """The sockets of a network namespace, and the processes that have them."""

    def __init__(self, namespace: Path) -> None:
        """Take the namespace of this file, such as `/proc/self/ns/net`. Raises OSError."""
        self._namespace = f"net:[{namespace.stat().st_ino}]"
        self._saved, self._since = MOST_SAVED, time.monotonic()
        self._known: list[int] = []
        """The processes that were found last, the latest first: they are likely to have the next socket too."""

    def owner(self, protocol: str, source: tuple[str, int], destination: tuple[str, int]) -> Process | None:
        """Returns the process with the socket of a connection; None without one, or if there are too many connections."""
        begin = time.monotonic()
        self._saved = min(MOST_SAVED, self._saved + SHARE * (begin - self._since))
        self._since = begin
        if self._saved <= 0:
            return None
        try:
            number = self._number(protocol, source, destination)
            return None if number is None else self._holder(f"socket:[{number}]")
        finally:
            self._saved -= time.monotonic() - begin

    def _members(self) -> Iterator[int]:
        """Yields the processes of the network, those first that were found last."""
        known = list(self._known)
        for entry in itertools.chain(known, (entry for entry in _all_processes() if entry not in known)):
            if _link(f"/proc/{entry}/ns/net") == self._namespace:
                yield entry

    def _number(self, protocol: str, source: tuple[str, int], destination: tuple[str, int]) -> str | None:
        """Returns the number of the socket with these ends. Sockets for datagrams often have no other end."""
        locals_, remotes = set(_words(*source)), set(_words(*destination))
        if protocol == "udp":
            locals_ |= set(_anywhere(source[1]))
            remotes |= set(_anywhere(0))
        for table in (protocol, f"{protocol}6"):
            for line in self._table(table):
                columns = line.split()
                if columns[1] in locals_ and columns[2] in remotes:
                    return columns[9]
        return None

    def _table(self, name: str) -> list[str]:
        """Returns the lines of a table of sockets. Each process of the network has it, until it ends."""
        for member in self._members():
            try:
                return Path(f"/proc/{member}/net/{name}").read_text().splitlines()[1:]
            except OSError:
                continue
        return []

    def _holder(self, link: str) -> Process | None:
        """Returns the process with an open descriptor of this socket."""
        for member in self._members():
            folder = f"/proc/{member}"
            if any(_link(file) == link for file in _files(f"{folder}/fd")):
                try:
                    name = Path(folder, "comm").read_text().rstrip("\n")
                except OSError:
                    continue
                self._known = [member, *(known for known in self._known if known != member)][:MOST_KNOWN]
                return Process(name, member)
        return None


def _all_processes() -> Iterator[int]:
    yield from sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def _words(host: str, port: int) -> Iterator[str]:
    """Yields the forms of an address in the tables: of its own family, and of IPv4 in IPv6."""
    address = ipaddress.ip_address(host)
    packed = [address.packed]
    if address.version == 4:
        packed.append(ipaddress.IPv6Address(f"::ffff:{host}").packed)
    for octets in packed:
        numbers = [int.from_bytes(octets[at : at + 4], sys.byteorder) for at in range(0, len(octets), 4)]
        yield "".join(f"{number:08X}" for number in numbers) + f":{port:04X}"


def _anywhere(port: int) -> Iterator[str]:
    yield from _words("0.0.0.0", port)
    yield from _words("::", port)


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _files(folder: str) -> list[str]:
    try:
        return [f"{folder}/{name}" for name in os.listdir(folder)]
    except OSError:
        return []

"""The process behind a connection that came from a device, by Linux's tables of sockets and `/proc`, for addons.

`instance` asks for it when a connection arrives, and `addon` writes it into flows.
"""

import itertools
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from weakref import WeakKeyDictionary

from mitmproxy.connection import Client
from mitmproxy.flow import Flow

from mitmproxy_watm import _native

logger = logging.getLogger(__name__)

PROCESS = "watm_process"
PID = "watm_pid"

MOST_KNOWN = 8
"""The most processes that a network remembers."""

MOST_SAVED = 1.0
"""The most seconds that a network saves up for its searches."""

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

    None if another way brought it here, if it comes from another machine, or if its socket was gone already. Works for
    saved and loaded flows too: `flow.metadata` keeps it, as "watm_process" and "watm_pid".
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

    def __init__(self, table: _native.SocketTable, namespace: Path) -> None:
        """Take the table of the namespace of this file, such as `/proc/self/ns/net`. Raises OSError."""
        self._table = table
        self._namespace = f"net:[{namespace.stat().st_ino}]"
        self._saved, self._since = MOST_SAVED, time.monotonic()
        self._known: list[int] = []
        """The processes that were found last, the latest first: they are likely to have the next socket too."""

    @classmethod
    def of_this_machine(cls) -> "Sockets | None":
        """Returns the sockets of mitmproxy's own namespace; None if the system does not tell them."""
        try:
            return cls(_native.SocketTable(), Path("/proc/self/ns/net"))
        except OSError as e:
            logger.debug("cannot look for the processes of connections: %s", e)
            return None

    @classmethod
    def of_device(cls, device: _native.Launched, namespace: str | None) -> "Sockets | None":
        """Returns the sockets of the namespace that a device is for, or of its program if `namespace` is None.

        None if the system does not tell them. Raises OSError.
        """
        table = device.sockets()
        file = f"/proc/{device.pid}/ns/net" if namespace is None else _native.namespace_file(namespace)
        return None if table is None else cls(table, Path(file))

    def owner(self, protocol: str, source: tuple[str, int], destination: tuple[str, int]) -> Process | None:
        """Returns the process with the socket of a connection; None without one, or if there are too many connections."""
        begin = time.monotonic()
        self._saved = min(MOST_SAVED, self._saved + SHARE * (begin - self._since))
        self._since = begin
        if self._saved <= 0:
            return None
        try:
            find = self._table.stream if protocol == "tcp" else self._table.datagrams
            number = find(_address(source), _address(destination))
            return None if number is None else self._holder(f"socket:[{number}]")
        except OSError as e:
            logger.debug("cannot look for the process of a connection: %s", e)
            return None
        finally:
            self._saved -= time.monotonic() - begin

    def _members(self) -> Iterator[int]:
        """Yields the processes of the network, those first that were found last."""
        known = list(self._known)
        for entry in itertools.chain(known, (entry for entry in _all_processes() if entry not in known)):
            if _link(f"/proc/{entry}/ns/net") == self._namespace:
                yield entry

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


def _address(of: tuple[str, int]) -> tuple[IPv4Address | IPv6Address, int]:
    return ip_address(of[0]), of[1]


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

"""The hostile modules, a kind each."""

import contextlib
import pathlib
import random
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass

from watm_test_support.repository import ROOT

# A module that obeys its configuration, harmful or not.
GUEST = ROOT / "build/guest.wasm"
# A module that only does harm.
WATER = ROOT / "build/hostile.watm1.wasm"

# Clients of a WATER module in one run, with an instance for each.
CLIENTS = 16


@dataclass(frozen=True)
class Attacker:
    """A kind of hostile module. Seeds from a multiple of `preferences` up to the next one each
    favour other calls."""

    module: pathlib.Path
    config: Callable[[int], str]
    preferences: int
    networks: tuple[str, ...]
    memory_mib: int
    """The memory limit of an instance."""
    instances: int = 1
    """The most instances at once."""
    provoke: Callable[[int, int, float, threading.Event], None] | None = None
    """Called with a seed, the port and the duration in seconds, in a thread of its own, for modules
    that wait for clients. Returns early at the event."""


def _connect(seed: int, port: int, seconds: float, ended: threading.Event) -> None:
    """Connects as many clients as are allowed, one after the other. Each sends its number, and some
    leave before the end."""
    chance = random.Random(seed)
    with contextlib.ExitStack() as stack:
        clients = []
        for number in range(CLIENTS):
            # The listener may be busy, and the hostile module may end a client at any time.
            with contextlib.suppress(OSError):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", port), 1))
                client.setblocking(False)
                clients.append(client)
                client.send(bytes([number]) + chance.randbytes(chance.choice([0, 10, 1000, 60_000])))
            if clients and chance.random() < 0.4:
                _leave(clients.pop(chance.randrange(len(clients))), chance)
            if ended.wait(seconds / CLIENTS):
                return
        ended.wait()


def _leave(client: socket.socket, chance: random.Random) -> None:
    """Leaves by an orderly end, or by a reset."""
    if chance.random() < 0.5:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


ATTACKERS = {
    "component": Attacker(
        module=GUEST,
        config=lambda seed: f"hostile {seed}",
        preferences=18,
        networks=("tcp", "udp"),
        memory_mib=16,
    ),
    "water": Attacker(
        module=WATER,
        config=lambda seed: f"hostile {seed}",
        preferences=12,
        networks=("tcp",),
        memory_mib=4,
        instances=CLIENTS,
        provoke=_connect,
    ),
}

"""The modules that do harm, a kind each."""

import contextlib
import pathlib
import random
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What does what it is told: its configuration says whether that is harm.
GUEST = ROOT / "build/guest.wasm"
# Does nothing but harm.
WATER = ROOT / "build/hostile.watm1.wasm"

# Clients of a module of WATER in one run, which has an instance for each.
CLIENTS = 16


@dataclass(frozen=True)
class Attacker:
    """A kind of hostile module. All seeds from a multiple of `preferences` up to the next one press on other places."""

    module: pathlib.Path
    config: Callable[[int], str]
    preferences: int
    networks: tuple[str, ...]
    memory_mib: int
    """What an instance may have."""
    instances: int = 1
    """How many there are at once, at most."""
    provoke: Callable[[int, int, float, threading.Event], None] | None = None
    """Called with a seed, the port and the seconds that it is to take, in a thread of its own, for modules that wait
    for somebody. Returns early at the event."""


def _connect(seed: int, port: int, seconds: float, ended: threading.Event) -> None:
    """As many clients as there may be, one after the other. Each says its number, and some go before the end."""
    chance = random.Random(seed)
    with contextlib.ExitStack() as stack:
        clients = []
        for number in range(CLIENTS):
            # The listener may be busy, and what is hostile may end a client at any time.
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
    """By an end, or a reset."""
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

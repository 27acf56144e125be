"""The modules that do harm, a kind each."""

import pathlib
from collections.abc import Callable
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What does what it is told: its configuration says whether that is harm.
GUEST = ROOT / "build/guest.wasm"


@dataclass(frozen=True)
class Attacker:
    """A kind of hostile module. All seeds from a multiple of `preferences` up to the next one press on other places."""

    module: pathlib.Path
    config: Callable[[int], str]
    preferences: int
    networks: tuple[str, ...]
    provoke: Callable[[int], None] = lambda _: None
    """Called again and again with the port, from a thread of its own, for modules that wait for somebody."""


ATTACKERS = {
    "component": Attacker(
        module=GUEST,
        config=lambda seed: f"hostile {seed}",
        preferences=18,
        networks=("tcp", "udp"),
    ),
}

"""The clients, each with a kind of connection, and the services that they connect to."""

import functools
import json
import os
import pathlib

from tests.bench.processes import LIMIT, Failed, Process
from watm_test_support.repository import ROOT

from ..modules import components, own, shipped

_GO = ROOT / "build" / "gowater"
_RUST = ROOT / "target" / "release" / "examples" / "water_client"

# The runtime and the module of each kind.
KINDS = {
    "raw-go": "TCP, in Go",
    "raw-rust": "TCP, in Rust",
    "hop-go": "a native copy behind a loopback connection, in Go",
    "hop-rust": "a native copy behind a queue, in Rust",
    "go-theirs": "the Go runtime with the plain module of the WATER project",
    "go-ours": "the Go runtime with our plain module",
    "ours-theirs": "our runtime with the plain module of the WATER project",
    "ours-v1": "our runtime with our plain module",
    "ours-component": "our runtime with our plain module as a component",
}


@functools.cache
def commands() -> dict[str, list[str | pathlib.Path]]:
    """The command of each kind."""
    theirs = next(module.path for module in shipped() if module.name == "v1-plain")
    files = {module.name: module.path for module in [*own(), *components()]}
    return {
        "raw-go": [_GO, "client", "raw"],
        "raw-rust": [_RUST, "raw"],
        "hop-go": [_GO, "client", "hop"],
        "hop-rust": [_RUST, "hop"],
        "go-theirs": [_GO, "client", theirs],
        "go-ours": [_GO, "client", files["own-plain"]],
        "ours-theirs": [_RUST, theirs],
        "ours-v1": [_RUST, files["own-plain"]],
        "ours-component": [_RUST, files["own-plain-component"]],
    }


class Services(Process):
    """The services: an echo and a sink."""

    def __init__(self, cpus: set[int]) -> None:
        super().__init__([_GO, "services"], cpus)

    def __enter__(self) -> "Services":
        self.addresses = self.hear(10)
        return self


class Client(Process):
    """A client of one kind."""

    def __init__(self, kind: str, services: Services, cpus: set[int]) -> None:
        super().__init__(commands()[kind], cpus)
        self._services = services

    def __enter__(self) -> "Client":
        # A module that is not in a cache is compiled first.
        self._answer(60)
        return self

    def ask(self, do: str, service: str, **options: int) -> dict:
        """The result of a request. Raises `Failed`."""
        request = {"do": do, "to": self._services.addresses[service], "timeout_ms": LIMIT * 1000, **options}
        self.say(json.dumps(request))
        return self._answer(LIMIT + 10)

    def threads(self) -> int:
        """Returns the number of its threads."""
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def descriptors(self) -> int:
        """Returns the number of its open descriptors."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def _answer(self, seconds: float) -> dict:
        reply = self.hear(seconds)
        if "error" in reply:
            raise Failed(reply["error"])
        return reply["ok"]

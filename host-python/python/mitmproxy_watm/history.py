"""The recent past of a running module: its traffic, and the modules that served before."""

import time
from collections import deque
from dataclasses import dataclass

from mitmproxy_watm._native import Module, Status

KEPT = 121
"""The number of samples that are kept: two minutes of one a second."""

REMEMBERED = 20
"""The number of generations that are remembered after their end."""


@dataclass(frozen=True)
class Sample:
    """The traffic of a module until a moment."""

    time: float
    """Seconds of the monotonic clock."""
    received: int
    """Bytes from the network, since its start."""
    sent: int
    """Bytes to the network, since its start."""
    flows: int
    """Open flows."""


@dataclass
class Served:
    """A generation of a module."""

    number: int
    module: str
    sha256: str
    release: str | None
    """The release in its seal."""
    began: float
    """Seconds since 1970."""
    replaced: float | None = None
    """The moment at which another generation took over."""
    flows: int = 0
    """Flows that it still has."""
    ended: bool = False
    """True once it is gone."""


class History:
    """The past of a running module."""

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=KEPT)
        self.served: dict[int, Served] = {}
        """Generations by number, the oldest first."""
        self.current: Module | None = None
        """The module in service."""
        self.previous: Module | None = None
        """The module before it, with other content."""

    def sample(self, status: Status) -> None:
        """Note the traffic."""
        counters = status.counters
        received, sent = counters.get("host.bytes_received", 0), counters.get("host.bytes_sent", 0)
        self.samples.append(Sample(time.monotonic(), received, sent, status.flows))

    def observe(self, status: Status, module: Module | None) -> None:
        """Note the generations, and the module in service."""
        now = time.time()
        alive = {known.number for known in status.generations}
        for known in status.generations:
            noted = self.served.get(known.number)
            if noted is None:
                noted = self.served[known.number] = Served(known.number, known.module, known.sha256, None, now - known.age)
            noted.flows = known.flows
            if known.draining is not None:
                noted.replaced = now - known.draining
            elif module is not None and module.seal is not None and module.sha256 == known.sha256:
                noted.release = module.seal.version or module.seal.release
        for number, noted in self.served.items():
            if alive and number not in alive and not noted.ended:
                noted.ended, noted.flows = True, 0
                noted.replaced = noted.replaced or now
        for number in list(self.served)[:-REMEMBERED]:
            if self.served[number].ended:
                del self.served[number]
        if module is None or self.current is not None and module.sha256 == self.current.sha256:
            return
        self.previous, self.current = self.current, module
        if not status.generations:
            self._succeed(module, now)

    def _succeed(self, module: Module, now: float) -> None:
        """Note a module that has an instance for each connection, and therefore no generations."""
        number = max(self.served, default=-1) + 1
        for noted in self.served.values():
            if noted.replaced is None:
                noted.replaced, noted.ended = now, True
        release = None if module.seal is None else module.seal.version or module.seal.release
        self.served[number] = Served(number, module.name, module.sha256, release, now)

    @property
    def rates(self) -> tuple[float, float]:
        """Bytes per second received and sent, over the last seconds."""
        recent = list(self.samples)[-4:]
        if len(recent) < 2 or recent[-1].time <= recent[0].time:
            return 0.0, 0.0
        first, last = recent[0], recent[-1]
        spent = last.time - first.time
        return max(0, last.received - first.received) / spent, max(0, last.sent - first.sent) / spent

"""The questions of the benchmark, a class each."""

import time
from collections.abc import Iterator
from typing import ClassVar

from tests.bench.studies import GIGA, Measure, Placement, Sample, Study

from .clients import KINDS, Client, Services

SIZES = (1, 64, 512, 1024, 4096, 65536)


class Question(Study):
    """A measurement of every client."""

    servers: ClassVar[list[str]] = list(KINDS)

    def run(self, kind: str, cpus: Placement) -> Iterator[Sample]:
        with Services(cpus.server) as services, Client(kind, services, cpus.client) as client:
            yield from self.ask(client)

    def ask(self, client: Client) -> Iterator[Sample]:
        """Yields samples as they arrive. Raises `Failed`."""
        raise NotImplementedError


class RoundTrips(Question):
    """Round trips, one message at a time."""

    title = "round trips"
    compared = ("ours-v1", "raw-rust")
    placements = ["pinned", "unpinned"]
    most_repetitions = 5

    def ask(self, client: Client) -> Iterator[Sample]:
        count = 100 if self.quick else 5_000
        client.ask("echo", "echo", count=count, size=64)  # the first are slower
        for size in SIZES:
            answer = client.ask("echo", "echo", count=count, size=size)
            measures = [Measure(f"{size} B: p50 us", answer["p50_us"], 1), Measure("  p99 us", answer["p99_us"], 1)]
            yield Sample(f"{size}", measures, answer)


class Throughput(Question):
    """The throughput of one direction, by the size of writes."""

    title = "throughput"
    compared = ("ours-v1", "hop-rust")
    placements = ["pinned", "unpinned"]
    most_repetitions = 5
    # Bytes for each size of piece: about a second with a native copy.
    volumes: ClassVar[dict[int, int]] = {
        1: 600_000,
        64: 40_000_000,
        512: 250_000_000,
        1024: 500_000_000,
        4096: 1_000_000_000,
        65536: 1_500_000_000,
    }

    def ask(self, client: Client) -> Iterator[Sample]:
        for size, volume in self.volumes.items():
            volume = volume // 50 if self.quick else volume
            before = client.cpu_seconds()
            answer = client.ask("stream", "sink", bytes=volume, size=size)
            cost = (client.cpu_seconds() - before) * GIGA / volume
            yield Sample(f"{size}", _rate(f"{size} B", answer, 1, cost), answer)


class Setup(Question):
    """New connections, one after the other, each with a round trip of one byte."""

    title = "connections"
    compared = ("ours-v1", "go-theirs")
    placements = ["pinned", "unpinned"]

    def ask(self, client: Client) -> Iterator[Sample]:
        client.ask("connect", "echo", count=3)  # the first are slower
        answer = client.ask("connect", "echo", count=20 if self.quick else 300)
        measures = [
            Measure("dial to first byte: p50 us", answer["p50_us"]),
            Measure("  p99 us", answer["p99_us"]),
            Measure("  connections/s", answer["per_second"]),
        ]
        yield Sample("connect", measures, answer)


class Idle(Question):
    """The cost of idle connections: memory, threads, descriptors and CPU time."""

    title = "idle connections"
    compared = ("ours-v1", "go-theirs")
    placements = ["unpinned"]
    most_repetitions = 2

    def ask(self, client: Client) -> Iterator[Sample]:
        count = 50 if self.quick else 1_000
        # The first connection includes the shared costs.
        client.ask("hold", "echo", count=1)
        memory, descriptors = client.rss_mb(), client.descriptors()
        answer = client.ask("hold", "echo", count=count)
        used = client.cpu_seconds()
        seconds = 1 if self.quick else 5
        time.sleep(seconds)
        measures = [
            Measure(f"{count} connections: MB resident", client.rss_mb(), 1),
            Measure("  of these not with one, MB", client.rss_mb() - memory, 1),
            Measure("  threads", client.threads()),
            Measure("  descriptors a connection", (client.descriptors() - descriptors) / count, 2),
            Measure("  % of a CPU", (client.cpu_seconds() - used) * 100 / seconds, 2),
        ]
        yield Sample("idle", measures, answer)


class Crowd(Question):
    """16 connections at once, the client and the services on the same two CPUs."""

    title = "16 connections at once"
    compared = ("ours-v1", "hop-rust")
    placements = ["unpinned"]
    most_repetitions = 5
    connections: ClassVar[int] = 16

    def ask(self, client: Client) -> Iterator[Sample]:
        for size in (1024, 65536):
            count = 50 if self.quick else 2_000
            answer = client.ask("echo", "echo", count=count, size=size, connections=self.connections)
            measures = [
                Measure(f"round trips, {size} B: a second", answer["per_second"]),
                Measure("  p50 us", answer["p50_us"], 1),
                Measure("  p99 us", answer["p99_us"], 1),
            ]
            yield Sample(f"round trips {size}", measures, answer)
        for size in (1024, 65536):
            volume = 1_000_000 if self.quick else 100_000_000
            before = client.cpu_seconds()
            answer = client.ask("stream", "sink", bytes=volume, size=size, connections=self.connections)
            cost = (client.cpu_seconds() - before) * GIGA / volume / self.connections
            yield Sample(f"one way {size}", _rate(f"one way, {size} B", answer, self.connections, cost), answer)


STUDIES: dict[str, type[Question]] = {
    "round-trips": RoundTrips,
    "throughput": Throughput,
    "connections": Setup,
    "idle": Idle,
    "crowd": Crowd,
}


def _rate(title: str, answer: dict, connections: int, cost: float) -> list[Measure]:
    """Formats a rate if every connection survived, and otherwise the number that did."""
    survived = Measure("  % survived", answer["survived"] * 100 / connections)
    if survived.value < 100:
        return [survived]
    return [Measure(f"{title}: Mbit/s", answer["mbit_per_second"]), survived, Measure("  client CPU s/GB", cost, 2)]

"""The measurements, a class for each question. `rounds` runs them."""

import base64
import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from watm_test_support import services
from watm_test_support.paths import Path, path

from . import networks, workloads
from .processes import DESTINATION, Client, Crowd, Device, Echo, Exec, Failed, Mitmdump, OwnMode, Process, Server

MEGA, GIGA = 1_000_000, 1_000_000_000
# mitmdump answers it with 1000 bytes, and with others if the path is their number.
ANSWERING = f"http://{DESTINATION}/"


@dataclass(frozen=True)
class Measure:
    """One figure, a row of the table."""

    title: str
    value: float
    digits: int = 0


@dataclass
class Sample:
    """The result of one piece of work: figures for the table, and the client's whole answer."""

    name: str
    measures: list[Measure]
    answer: Any


@dataclass(frozen=True)
class Placement:
    """The CPUs of the two sides."""

    server: set[int]
    client: set[int]


class Study:
    """A question, and the servers that it is put to, each in a process of its own."""

    title: ClassVar[str]
    servers: ClassVar[list[str]] = ["native", "watm"]
    # The ratio in the table is `compared[0]` to `compared[1]`.
    compared: ClassVar[tuple[str, str]] = ("watm", "native")
    placements: ClassVar[list[str]] = ["pinned"]
    needs_device: ClassVar[bool] = False
    # Some take minutes.
    most_repetitions: ClassVar[int] = 3

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick

    def run(self, kind: str, cpus: Placement) -> Iterator[Sample]:
        """Yields samples as they arrive. Raises `Failed`."""
        raise NotImplementedError


class Traffic(Study):
    """Round trips, bulk, connections: rate, latency, CPU."""

    title = "traffic"
    servers = ["native", "watm", "watm-own-aead", "plain"]
    placements = ["pinned", "unpinned"]
    most_repetitions = 5

    def run(self, kind: str, cpus: Placement) -> Iterator[Sample]:
        catalogue = workloads.QUICK if self.quick else workloads.FULL
        with Server(kind, cpus.server) as server, Client(server.reach, cpus.client) as client:
            warm_up(client)
            for name, workload in catalogue.items():
                yield carried(name, workload, server, client)


class Memory(Study):
    """Memory that a server keeps after its work."""

    title = "memory"

    def run(self, kind: str, cpus: Placement) -> Iterator[Sample]:
        size = MEGA if self.quick else 100 * MEGA
        connections = 100 if self.quick else 10_000
        with Server(kind, cpus.server) as server, Client(server.reach, cpus.client) as client:
            warm_up(client)
            yield _rss("after the first messages", server)
            client.run("bulk-up", workloads.SINK, bytes=size // 2)
            client.run("bulk-down", workloads.SOURCE, bytes=size // 2)
            yield _rss(f"after {size // MEGA} MB", server)
            client.run("bulk-up", workloads.SINK, bytes=size * 9 // 2)
            client.run("bulk-down", workloads.SOURCE, bytes=size * 9 // 2)
            yield _rss(f"after {size * 10 // MEGA} MB", server)
            for done in (connections // 10, connections):
                client.run("connect", workloads.ECHO, count=connections // 10 if done < connections else done * 9 // 10)
                yield _rss(f"and {done} short connections", server)


class Flows(Study):
    """CPU time of a packet, and memory, while other flows are open and idle."""

    title = "idle flows"

    def run(self, kind: str, cpus: Placement) -> Iterator[Sample]:
        messages = 100 if self.quick else 3_000
        for flows in (10, 100) if self.quick else (10, 1_000, 10_000):
            with Server(kind, cpus.server) as server, Client(server.reach, cpus.client) as client:
                warm_up(client)
                before = server.rss_mb()
                with Crowd(server.reach, cpus.client, flows):
                    memory = server.rss_mb() - before
                    spent = Spent(server, client)
                    answer = client.run("echo", workloads.ECHO, messages=messages, size=100)
                    yield Sample(
                        f"{flows} flows",
                        [
                            Measure(f"{flows} idle flows: MB", memory),
                            Measure("  echo beside them: msg/s", answer["per_second"]),
                            *latencies(answer),
                            spent.each(messages),
                        ],
                        answer,
                    )


class LongPath(Study):
    """Bulk over a path that is long, or loses datagrams."""

    title = "long paths"
    most_repetitions = 2

    def run(self, kind: str, cpus: Placement) -> Iterator[Sample]:
        size = MEGA // 2 if self.quick else 20 * MEGA
        for delay, loss in (("50ms", 0.0), ("100ms", 0.0), ("50ms", 0.01)):
            with Server(kind, cpus.server) as server:
                with Client(server.reach, cpus.client, f"--delay={delay}", f"--loss={loss}") as client:
                    warm_up(client)
                    where = delay.replace("ms", " ms") + (f", {loss:.0%} lost" if loss else "")
                    up = client.run("bulk-up", workloads.SINK, bytes=size)
                    yield Sample(f"up {where}", [Measure(f"up, {where}: MB/s", up["mb_per_second"], 1)], up)
                    down = client.run("bulk-down", workloads.SOURCE, bytes=size)
                    yield Sample(f"down {where}", [Measure(f"down, {where}: MB/s", down["mb_per_second"], 1)], down)


class Jitter(Study):
    """Bulk over a path with a varying delay, and a large message after small ones on one that has
    become longer. The path keeps the order of datagrams."""

    title = "jitter"
    most_repetitions = 2

    def run(self, kind: str, cpus: Placement) -> Iterator[Sample]:
        size = MEGA // 2 if self.quick else 20 * MEGA
        with self._serving(kind, cpus, "--jitter", "2ms-20ms") as (client, _):
            for title, action, port in (("up", "bulk-up", workloads.SINK), ("down", "bulk-down", workloads.SOURCE)):
                answer = client.run(action, port, bytes=size)
                measure = Measure(f"{title}, 2 to 20 ms each way: MB/s", answer["mb_per_second"], 1)
                yield Sample(f"{title} jitter", [measure], answer)
        for round_trip, few in ((60, 100), (20, 1000)):
            with self._serving(kind, cpus) as (client, between):
                seconds = self._trickle(client, between, round_trip, few)
                title = f"{services.FEW} x {few} B, then {services.LOT // 1000} kB, from 0 to {round_trip} ms: s"
                yield Sample(f"trickle {round_trip} ms", [Measure(title, seconds, 2)], {"seconds": seconds})

    @contextlib.contextmanager
    def _serving(self, kind: str, cpus: Placement, *options: str) -> Iterator[tuple[Client, Path]]:
        """Runs a server and a client with a path of these options between them."""
        with Server(kind, cpus.server) as server:
            port = int(server.reach["server"].rpartition(":")[2])
            beside = ["taskset", "-c", ",".join(map(str, cpus.client))]
            with (
                path(port, *options, inside=lambda *command: [*beside, *command]) as between,
                Client(server.reach | {"server": between.address}, cpus.client) as client,
            ):
                warm_up(client)
                yield client, between

    def _trickle(self, client: Client, between: Path, round_trip: int, size: int) -> float:
        """Returns the seconds from the change of the round trip until everything has arrived."""
        client.run("open", workloads.TRICKLE, name="trickle")
        for _ in range(50):
            client.run("write", name="trickle", data=_number(0))
            client.run("read", name="trickle", max=8, exactly=True)
        between.change("--round-trip", f"{round_trip}ms")
        begun = time.monotonic()
        client.run("write", name="trickle", data=_number(size))
        client.run("read", name="trickle", max=services.FEW * size + services.LOT, exactly=True)
        return time.monotonic() - begun


class Handshakes(Study):
    """New tunnels of one key, one after the other."""

    title = "handshakes"
    most_repetitions = 2

    def run(self, kind: str, cpus: Placement) -> Iterator[Sample]:
        # The native server takes five seconds for each from the eleventh on.
        rows = [15] if kind == "native" else [15, 50]
        for count in [3] if self.quick else rows:
            with Server(kind, cpus.server) as server, Client(server.reach, cpus.client) as client:
                answer = client.run("handshakes", count=count)
                yield Sample(
                    f"{count} handshakes",
                    [
                        Measure(f"{count} handshakes: p50 ms", answer["p50_us"] / 1e3, 2),
                        Measure("  slowest ms", answer["max_us"] / 1e3, 2),
                    ],
                    answer,
                )


class Browsing(Study):
    """HTTP through mitmdump, in mitmproxy's own mode and in `watm:` mode."""

    title = "mitmdump"
    placements = ["pinned", "unpinned"]

    def run(self, kind: str, cpus: Placement) -> Iterator[Sample]:
        count = 20 if self.quick else 1_000
        with Mitmdump(kind, cpus.server) as server, Client(server.reach, cpus.client) as client:
            client.run("http", url=ANSWERING, count=10)
            yield from gets(server, client, count)


class Devices(Study):
    """A device for the packets of programs, in mitmproxy's own mode and the module's."""

    title = "tun"
    needs_device = True
    most_repetitions = 5

    def run(self, kind: str, cpus: Placement) -> Iterator[Sample]:
        catalogue = workloads.QUICK if self.quick else workloads.FULL
        with self._serving(kind, cpus, networks.MTU) as (server, client):
            for name, workload in catalogue.items():
                yield carried(name, workload, server, client)
        # The MTU that mitmproxy's own mode gives its device.
        with self._serving(kind, cpus, workloads.LONGEST) as (server, client):
            for name in ("up", "down"):
                workload = catalogue[name]
                workload = dataclasses.replace(workload, title=f"{workload.title}, packets of 64 KiB")
                yield carried(f"{name} 64 KiB", workload, server, client)

    @contextlib.contextmanager
    def _serving(self, kind: str, cpus: Placement, mtu: int) -> Iterator[tuple[Device, Client]]:
        with Device(kind, cpus.server, mtu) as server, Client(server.reach, cpus.client) as client:
            warm_up(client)
            yield server, client


class Programs(Study):
    """A program whose only network is a device, in mitmdump: with `exec`, and in mitmproxy's own mode
    with a network made by hand. The packets take the path of `Devices`."""

    title = "exec"
    needs_device = True

    def run(self, kind: str, cpus: Placement) -> Iterator[Sample]:
        with tempfile.TemporaryDirectory() as folder:
            # The first mitmdump makes an authority, which takes long.
            with self._started(kind, cpus, folder):
                pass
            begun = time.monotonic()
            with self._started(kind, cpus, folder) as (server, client):
                answer = client.run("http", url=ANSWERING)
                seconds = time.monotonic() - begun
                yield Sample("start", [Measure("from the start to the first answer: s", seconds, 2)], answer)
                # In mitmproxy's own mode, some of them take eleven seconds.
                yield from gets(server, client, 20 if self.quick else 500)
                yield self._download(server, client)

    @contextlib.contextmanager
    def _started(self, kind: str, cpus: Placement, folder: str) -> Iterator[tuple[Process, Client]]:
        """Runs mitmdump and a client in its network."""
        if kind == "watm":
            with Exec(folder, cpus.server, cpus.client) as both:
                yield both, both
        else:
            with OwnMode(folder, cpus.server) as server, Client(server.reach, cpus.client) as client:
                yield server, client

    def _download(self, server: Process, client: Client) -> Sample:
        size, count = (MEGA, 2) if self.quick else (10 * MEGA, 20)
        before = server.cpu_seconds()
        answer = client.run("http", url=f"{ANSWERING}{size}", count=count, keep_alive=True)
        spent = server.cpu_seconds() - before
        return Sample(
            "download",
            [
                Measure(f"GET {count} x {size // MEGA} MB: MB/s", size * count / MEGA / answer["seconds"]),
                Measure("  server CPU s/GB", spent * GIGA / size / count, 2),
            ],
            answer,
        )


class Sandbox(Study):
    """The transport crate in the module and without one: an echo in Rust at the other end."""

    title = "the price of the sandbox"
    servers = ["crate", "watm"]
    compared = ("watm", "crate")
    most_repetitions = 5

    def run(self, kind: str, cpus: Placement) -> Iterator[Sample]:
        size = MEGA if self.quick else 200 * MEGA
        messages = 200 if self.quick else 10_000
        with Echo(kind, cpus.server) as server, Client(server.reach, cpus.client) as client:
            warm_up(client)
            spent = Spent(server, client)
            answer = client.run("halfclose", workloads.ECHO, size=size)
            if answer["received"] != size:
                raise Failed(f"{answer['received']} of {size} bytes came back")
            yield Sample("echo", spent.per_gb(size, f"{size // MEGA} MB there and back: "), answer)
            for window in (1, 32):
                spent = Spent(server, client)
                answer = client.run("udp-echo", workloads.ECHO, messages=messages, size=1000, window=window)
                yield Sample(
                    f"udp window {window}",
                    [
                        Measure(f"UDP echo, window {window}: msg/s", answer["per_second"]),
                        spent.each(messages),
                    ],
                    answer,
                )


STUDIES: dict[str, type[Study]] = {
    "traffic": Traffic,
    "memory": Memory,
    "flows": Flows,
    "path": LongPath,
    "jitter": Jitter,
    "handshakes": Handshakes,
    "mitmdump": Browsing,
    "tun": Devices,
    "exec": Programs,
    "sandbox": Sandbox,
}


class Spent:
    """The CPU time that both sides have used since this was created."""

    def __init__(self, server: Process, client: Process) -> None:
        self._sides = {"server": server, "client": client}
        self._before = {name: side.cpu_seconds() for name, side in self._sides.items()}

    def per_gb(self, volume: int, prefix: str = "  ") -> list[Measure]:
        """Returns the time for a gigabyte of payload, given the bytes moved."""
        return [Measure(f"{prefix}{name} CPU s/GB", self._seconds(name) * GIGA / volume, 2) for name in self._sides]

    def each(self, count: int) -> Measure:
        """Returns the server's time for each of `count` pieces."""
        return Measure("  server CPU us each", self._seconds("server") * 1e6 / count)

    def _seconds(self, name: str) -> float:
        return self._sides[name].cpu_seconds() - self._before[name]


def carried(name: str, workload: workloads.Workload, server: Process, client: Client) -> Sample:
    """Has the client do one of the workloads."""
    spent = Spent(server, client)
    answer = client.run(workload.action, workload.port, **workload.options)
    measures = [Measure(f"{workload.title}: {workload.unit}", answer[workload.figure])]
    if workload.volume:
        measures += spent.per_gb(workload.volume)
    else:
        measures += latencies(answer)
        measures.append(spent.each(workload.count))
    if answer.get("lost"):
        measures.append(Measure("  lost", answer["lost"]))
    return Sample(name, measures, answer)


def gets(server: Process, client: Client, count: int) -> Iterator[Sample]:
    """Has the client make requests to mitmdump, in two ways."""
    for title, keep_alive in (("a connection each", False), ("one connection", True)):
        spent = Spent(server, client)
        answer = client.run("http", url=ANSWERING, count=count, keep_alive=keep_alive)
        measures = [Measure(f"GET, {title}: requests/s", answer["per_second"]), *latencies(answer), spent.each(count)]
        yield Sample(title, measures, answer)


def warm_up(client: Client) -> None:
    """Excludes the handshake and the first allocations from the measurement."""
    client.run("echo", workloads.ECHO, messages=50, size=1000)


def latencies(answer: dict) -> list[Measure]:
    """Returns the percentiles of a round trip, in microseconds."""
    return [Measure("  p50 us", answer["p50_us"]), Measure("  p99 us", answer["p99_us"])]


def _rss(when: str, server: Process) -> Sample:
    memory = server.rss_mb()
    return Sample(when, [Measure(f"resident {when}: MB", memory, 1)], {"rss_mb": memory})


def _number(value: int) -> str:
    """Encodes a number for the client in the form that the services read."""
    return base64.b64encode(value.to_bytes(8, "little")).decode()

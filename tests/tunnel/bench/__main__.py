"""`make bench-tunnel`: programs through a WireGuard client, with `watm dial` and with other
clients.

iperf3 goes through a forwarded port of each client in turn, up and down, by one connection and by
four, to wireguard-go with a real interface in a network namespace; then an echo does. The paths
between them are emulated: each direction has half of the round trip, a rate, and a queue of a round
trip. The table also has the rate of the kernel's own TCP over the same paths, through
wireguard-go's interface, because no sender that must find the rate of a path reaches all of it. On
two processors everything shares both, so the client's CPU time for each GB is the figure to
compare.
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from watm_test_support import machine
from watm_test_support.paths import path
from watm_test_support.repository import ROOT
from watm_test_support.spaces import Space

from ..services import running
from .clients import (
    CLIENTS,
    CONGESTION,
    INSIDE,
    KERNEL,
    KERNEL_BBR,
    MTU,
    OURS,
    OURS_BBR,
    REFERENCES,
    SERVER_PORT,
    Client,
    Tunnel,
    client,
    served,
)
from .completion import CONDITIONS, Taken, comparing

# The congestion controls that the kernel allows in a namespace.
ALLOWED = pathlib.Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")

BULK_PORT, ECHO_PORT = 5201, 7
# The share of TCP payload in the UDP payload of a full packet: TCP without options, and WireGuard's
# 32 bytes.
PAYLOAD = (MTU - 40) / (MTU + 32)
# The number of messages of the echo, and its server. A client that is killed leaves its connection open
# there.
ECHOES = 300
ECHO = f"""
import socket, threading

def echo(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)

listener = socket.create_server(({INSIDE!r}, {ECHO_PORT}))
while True:
    threading.Thread(target=echo, args=listener.accept()[:1], daemon=True).start()
"""


@dataclass(frozen=True)
class Way:
    """A path and the times of its measurements in seconds: the duration, the warm-up that does not
    count because every connection begins slowly, and the time for data that is still on its way at
    the end.
    """

    title: str
    seconds: int
    warm: int
    options: tuple[str, ...] = ()
    mbits: float | None = None
    patience: int = 12


WAYS = (
    Way("0 ms", 2, 0),
    Way("20 ms, 200 Mbit/s", 3, 1, ("--round-trip", "20ms", "--mbits", "200"), 200),
    Way("100 ms, 100 Mbit/s", 5, 2, ("--round-trip", "100ms", "--mbits", "100"), 100),
    # Losses one by one, and the same share in bursts of 8 on average.
    Way("20 ms, 200 Mbit/s, 1 % lost", 3, 1, ("--round-trip", "20ms", "--mbits", "200", "--lost", "0.01")),
    Way("20 ms, 200 Mbit/s, 1 % lost, bursts", 3, 1, ("--round-trip", "20ms", "--mbits", "200", "--lost", "0.01", "--burst", "8")),
    # Some twelve datagrams in a row, once a second.
    Way(
        "20 ms, 200 Mbit/s, a burst lost each second",
        6,
        1,
        ("--round-trip", "20ms", "--mbits", "200", "--lost", "0.0007", "--burst", "12"),
    ),
    # The delays of each direction, in order.
    Way("2 to 20 ms, 200 Mbit/s", 3, 1, ("--jitter", "2ms-20ms", "--mbits", "200"), 200),
)
# Traffic whose completion time is measured, and its path: see completion.py.
COMPLETIONS = {
    "300 B, then 200 kB, from 0 to 60 ms": ("step", "trickle-then-bulk"),
    "3 MB, 2 to 20 ms": ("jitter", "bulk"),
}


@dataclass(frozen=True)
class Sample:
    """The rate in Mbit/s, and the CPU seconds of the client for each GB, if known."""

    mbits: float
    cpu: float | None


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-tunnel", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run: everything once, for a second")
    parser.add_argument("--clients", default=";".join((*CLIENTS, *REFERENCES)), help="which of %(default)s, separated by semicolons")
    parser.add_argument("--ways", default="", help="paths whose title begins so, separated by semicolons")
    parser.add_argument("--rounds", type=int, default=5, help="each has every client once (%(default)s)")
    parser.add_argument("--congestion", default=CONGESTION, help="control of the kernel's TCP (%(default)s)")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "bench-tunnel.json")
    options = parser.parse_args()
    ways = [way for way in WAYS if any(way.title.startswith(start) for start in options.ways.split(";"))]
    if options.quick:
        ways, options.rounds = [replace(way, seconds=1, warm=0, patience=60) for way in ways], 1
    kinds = options.clients.split(";")
    controls = {options.congestion, *(["bbr"] if KERNEL_BBR in kinds else [])}
    if missing := controls - set(ALLOWED.read_text().split()):
        parser.error(f"namespaces may not use {', '.join(missing)}; add it to the setting net.ipv4.tcp_allowed_congestion_control")
    described = machine.described() | {"congestion_control": options.congestion}
    samples: dict[str, dict[str, list[Sample]]] = {}
    trips: dict[str, list[float]] = defaultdict(list)
    completions: dict[str, dict[str, list[Taken]]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        served(kinds, options.congestion) as (near, far, tunnels),
        running(far, sys.executable, "-c", ECHO, listens=ECHO_PORT),
    ):
        for way in ways:
            for title, sample, kind in measured(way, options.rounds, near, far, tunnels, pathlib.Path(folder)):
                by = samples.setdefault(f"{way.title}: {title}", defaultdict(list))
                if sample:
                    by[kind].append(sample)
                figures = f"{sample.mbits:.0f} Mbit/s, {sample.cpu or 0:.2f} s/GB" if sample else "did not end"
                print(f"{way.title}: {title}, {kind}: {figures}", file=sys.stderr, flush=True)
        for number in range(options.rounds):
            for kind in machine.turns(kinds, number):
                trips[kind].append(round_trip(kind, near, tunnels[kind], pathlib.Path(folder)))
    # All of them run at once, and a namespace has one congestion control for the kernel's TCP.
    with_bbr = {OURS_BBR: OURS_BBR, KERNEL: KERNEL_BBR} if KERNEL_BBR in kinds else {}
    for congestion, labels in (
        (options.congestion, {kind: kind for kind in kinds if kind not in with_bbr.values()}),
        ("bbr", {kind: label for kind, label in with_bbr.items() if label in kinds}),
    ):
        for title, kind, taken in completed(list(labels), options.rounds, congestion):
            by = completions.setdefault(title, defaultdict(list))
            if taken:
                by[labels[kind]].append(taken)
            seconds = f"{taken.seconds:.2f} s" if taken else "did not end"
            print(f"{title}, {labels[kind]}: {seconds}", file=sys.stderr, flush=True)
    print(tables(samples, trips, kinds, {way.title: way for way in ways}))
    print(completion_table(completions, kinds))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    every = {"environment": described, "bulk": plain(samples), "round_trip_us": trips, "completion": plain(completions)}
    options.output.write_text(json.dumps(every, indent=1) + "\n")
    print(f"every sample: {options.output}")
    return 0


def measured(
    way: Way, rounds: int, near: Space, far: Space, tunnels: dict[str, Tunnel], folder: pathlib.Path
) -> Iterator[tuple[str, Sample | None, str]]:
    """The clients take turns."""
    with contextlib.ExitStack() as stack:
        if way.options:
            between = stack.enter_context(path(SERVER_PORT, *way.options, inside=near.command))
            tunnels = {kind: replace(tunnel, endpoint=between.port) for kind, tunnel in tunnels.items()}
        for streams in (1, 4):
            for title, direction in (("up", []), ("down", ["-R"])):
                fit = list(tunnels)
                for number in range(rounds):
                    for kind in list(machine.turns(fit, number)):
                        with (
                            running(far, "iperf3", "-s", "-J", "-p", BULK_PORT, listens=BULK_PORT),
                            client(kind, near, tunnels[kind], f"{INSIDE}:{BULK_PORT}", folder) as one,
                        ):
                            sample = bulk(near, one, way, ["-P", str(streams), *direction])
                        if sample is None:
                            # The client is left out from now on.
                            fit.remove(kind)
                        yield f"{title}, {streams} stream{'s' * (streams > 1)}", sample, kind


def bulk(near: Space, one: Client, way: Way, options: list[str]) -> Sample | None:
    """Measures a transfer. Returns None if it does not end."""
    command = ["iperf3", "-c", one.host, "-p", str(one.port), "-t", str(way.seconds), *options]
    before = one.used()
    command = near.command(*command, "-J", "--get-server-output")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=way.seconds + way.patience)
    except subprocess.TimeoutExpired:
        return None
    said = json.loads(done.stdout)
    if "error" in said:
        return None
    after = one.used()
    receiver = said if "-R" in options else said["server_output_json"]
    late = [i["sum"] for i in receiver["intervals"] if i["sum"]["start"] >= way.warm - 0.1]
    bits = sum(i["bytes"] * 8 for i in late) / sum(i["seconds"] for i in late)
    total = sum(i["sum"]["bytes"] for i in receiver["intervals"])
    spent = None if before is None or after is None else (after - before) / (total / 1e9)
    return Sample(bits / 1e6, spent)


def round_trip(kind: str, near: Space, tunnel: Tunnel, folder: pathlib.Path) -> float:
    """Returns the median round trip of messages in microseconds."""
    with client(kind, near, tunnel, f"{INSIDE}:{ECHO_PORT}", folder) as one:
        program = (
            "import socket, statistics, sys, time\n"
            f"s = socket.create_connection(({one.host!r}, {one.port}))\n"
            "s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\n"
            "def once():\n"
            "    begun = time.perf_counter()\n"
            "    s.sendall(b'x' * 64)\n"
            "    left = 64\n"
            "    while left:\n"
            "        left -= len(s.recv(left)) or sys.exit('cut short')\n"
            "    return time.perf_counter() - begun\n"
            f"print(statistics.median([once() for _ in range({ECHOES})][20:]) * 1e6)\n"
        )
        begun = time.monotonic()
        answer = float(near.run(sys.executable, "-c", program))
        assert time.monotonic() - begun < 60
        return answer


def completed(kinds: list[str], rounds: int, congestion: str) -> Iterator[tuple[str, str, Taken | None]]:
    """The clients take turns."""
    if not kinds:
        return
    with comparing(kinds, congestion) as comparison:
        for title, (condition, shape) in COMPLETIONS.items():
            for direction, number in itertools.product(("up", "down"), range(rounds)):
                for kind in machine.turns(kinds, number):
                    yield f"{title}: {direction}", kind, comparison.take(kind, CONDITIONS[condition], shape, direction)


def plain(samples: dict[str, dict[str, list]]) -> dict:
    """Returns every sample, for JSON."""
    return {title: {kind: [vars(s) for s in taken] for kind, taken in by.items()} for title, by in samples.items()}


def tables(
    samples: dict[str, dict[str, list[Sample]]], trips: dict[str, list[float]], kinds: list[str], ways: dict[str, Way]
) -> str:
    """Formats medians, and the ratio of WATM to the better of the others."""
    lines = []
    for column, title in (("cpu", "seconds of the client's processors for a GB"), ("mbits", "Mbit/s that arrive")):
        shown = [kind for kind in kinds if column == "mbits" or kind not in REFERENCES]
        lines += ["", f"{title}: median [least..most]", "", _row("", [*shown, "better by"])]
        for name, by in samples.items():
            medians = {k: statistics.median(getattr(s, column) for s in by[k]) for k in shown if by.get(k)}
            digits = 2 if column == "cpu" else 0
            cells = [
                machine.spread([getattr(s, column) for s in by[kind]], digits) if kind in medians else "did not end"
                for kind in shown
            ]
            cells.append(_better(medians, column == "cpu"))
            mbits = ways[name.partition(": ")[0]].mbits
            if column == "mbits" and mbits and OURS in medians:
                cells.append(f" {medians[OURS] / (mbits * PAYLOAD):.0%} of the path")
            lines.append(_row(name, cells))
    medians = {kind: statistics.median(trips[kind]) for kind in kinds}
    cells = [*(machine.spread(trips[kind], 0) for kind in kinds), _better(medians, True)]
    lines += ["", "round trip of 64 bytes, in µs: median [least..most]", "", _row("", [*kinds, "better by"]), _row("0 ms", cells)]
    return "\n".join(lines)


def completion_table(completions: dict[str, dict[str, list[Taken]]], kinds: list[str]) -> str:
    lines = ["", "seconds until the last byte arrives: median [least..most]", "", _row("", [*kinds, "better by"])]
    for title, by in completions.items():
        medians = {kind: statistics.median(one.seconds for one in by[kind]) for kind in kinds if by.get(kind)}
        cells = [
            machine.spread([one.seconds for one in by[kind]], 2) if kind in medians else "did not end" for kind in kinds
        ]
        lines.append(_row(title, [*cells, _better(medians, True)]))
    return "\n".join(lines)


def _better(medians: dict[str, float], less: bool) -> str:
    """Returns the factor by which WATM is better than the better of the others."""
    others = [value for kind, value in medians.items() if kind not in (OURS, OURS_BBR, *REFERENCES)]
    if OURS not in medians or not others:
        return ""
    return f"{min(others) / medians[OURS] if less else medians[OURS] / max(others):.2f}"


def _row(title: str, cells: list[str]) -> str:
    return f"{title:52}" + "".join(f"{cell:>24}" for cell in cells)


if __name__ == "__main__":
    sys.exit(main())

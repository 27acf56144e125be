"""`make bench-fairness`: the share of a connection of the module on a bottleneck that connections of
the kernel share.

All upload to the same wireguard-go through one emulated path, whose rate and queue they share. The
kernel's connections use CUBIC and BBR, and go through an interface of wireguard-go. The module's go
through `watm dial`, with CUBIC or BBR. Beside them, a connection of the kernel takes the same place.
Prints JSON with the machine and the commit. A share of 1 is what all would have if they had the same.

A share depends on the queue in front of the bottleneck. BBR's first version keeps up to two
bandwidth-delay products in flight and ignores losses, so it leaves little to others where the queue
is short. Ware et al. model this in "Modeling BBR's Interactions with Loss-Based Congestion Control"
(IMC 2019).
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import queue
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from watm_test_support import machine
from watm_test_support.paths import Path, path
from watm_test_support.spaces import Space

from ..services import running
from .clients import INSIDE, KERNEL, OURS, OURS_BBR, SERVER_PORT, Client, client, served

# A port for each connection at once.
PORTS = (5201, 5202, 5203)
MBITS = 20


@dataclass(frozen=True)
class Link:
    """The delay both ways together, and the longest wait in the queue, in milliseconds."""

    round_trip: int
    queue: int


LINKS = tuple(Link(round_trip, round_trip * queues) for round_trip in (20, 100) for queues in (1, 2))
# Congestion controls of the kernel's connections beside the first one.
MIXES = (("cubic",), ("bbr",), ("cubic", "bbr"))
# The connections whose share is measured. The kernel's has CUBIC.
FIRSTS = (KERNEL, OURS, OURS_BBR)
# Seconds of warm-up, in which all find their rate: BBR looks for the round trip once in ten seconds.
WARM = 10
# Seconds after the measurement for an upload to end.
PATIENCE = 20


@dataclass(frozen=True)
class Shares:
    """The rate of each connection in Mbit/s, the measured one first."""

    mbits: tuple[float, ...]

    @property
    def share(self) -> float:
        """Returns the share of the first connection; 1 is fair."""
        return self.mbits[0] * len(self.mbits) / sum(self.mbits)


class Bottleneck:
    """Clients on one path. Use `bottleneck`."""

    def __init__(self, near: Space, far: Space, between: Path, clients: dict[str, Client]) -> None:
        self._near, self._far, self._between, self._clients = near, far, between, clients

    def take(self, first: str, beside: Sequence[str], link: Link, seconds: int, warm: int = WARM) -> Shares:
        """Measures the rates of an upload of this kind and of simultaneous ones of the kernel."""
        times = ("--round-trip", f"{link.round_trip}ms", "--queue", f"{link.queue}ms")
        self._between.change(*times, "--mbits", str(MBITS))
        clients = [self._clients[first], *(replace(self._clients[KERNEL], port=port) for port in PORTS[1:])]
        with contextlib.ExitStack() as stack:
            for port in PORTS[: len(beside) + 1]:
                # A server of the last measurement may still wait for its end.
                stack.enter_context(running(self._far, "iperf3", "-s", "-J", "-p", port, listens=port))
            uploads = [
                stack.enter_context(_upload(self._near, one, control, seconds, warm))
                for one, control in zip(clients, ("cubic", *beside), strict=False)
            ]
            return Shares(tuple(_arrived(upload, warm + seconds) for upload in uploads))


@contextlib.contextmanager
def bottleneck() -> Iterator[Bottleneck]:
    """Runs the path and all clients, for the length of the block."""
    with served(FIRSTS) as (near, far, tunnels), contextlib.ExitStack() as stack:
        for space in (near, far):
            # The next connection must not know the path from an earlier one.
            space.run("sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1")
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        between = stack.enter_context(path(SERVER_PORT, inside=near.command))
        clients = {}
        for kind in FIRSTS:
            tunnel = replace(tunnels[kind], endpoint=between.port)
            clients[kind] = stack.enter_context(client(kind, near, tunnel, f"{INSIDE}:{PORTS[0]}", folder))
        yield Bottleneck(near, far, between, clients)


@contextlib.contextmanager
def _upload(near: Space, one: Client, control: str, seconds: int, warm: int) -> Iterator[subprocess.Popen]:
    command = ["iperf3", "-c", one.host, "-p", str(one.port), "-t", str(seconds), "-O", str(warm), "-J"]
    if one.process is None:
        command += ["-C", control]
    process = subprocess.Popen(near.command(*command, "--get-server-output"), stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _arrived(upload: subprocess.Popen, seconds: int) -> float:
    """Returns the rate in Mbit/s at which the server read after the warm-up."""
    output, _ = upload.communicate(timeout=seconds + PATIENCE)
    result = json.loads(output)
    assert "error" not in result, result["error"]
    return result["server_output_json"]["end"]["sum_received"]["bits_per_second"] / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench-fairness", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="each has every case once (%(default)s)")
    parser.add_argument("--seconds", type=int, default=40, help="of each measurement (%(default)s)")
    parser.add_argument("--at-once", type=int, default=1, help="bottlenecks that are measured at a time (%(default)s)")
    options = parser.parse_args()
    taken: dict[tuple[str, tuple[str, ...], Link], list[Shares]] = {}
    described = machine.described() | {"at_once": options.at_once, "seconds": options.seconds}
    free: queue.SimpleQueue[Bottleneck] = queue.SimpleQueue()

    def take(case: tuple[str, tuple[str, ...], Link]) -> None:
        first, mix, link = case
        shared = free.get()
        try:
            one = shared.take(first, mix, link, options.seconds)
        finally:
            free.put(shared)
        taken.setdefault(case, []).append(one)
        rates = ", ".join(f"{rate:.1f}" for rate in one.mbits)
        print(f"{link}: {first} beside {' and '.join(mix)}: {rates} Mbit/s", file=sys.stderr, flush=True)

    with contextlib.ExitStack() as stack:
        for _ in range(options.at_once):
            free.put(stack.enter_context(bottleneck()))
        workers = stack.enter_context(ThreadPoolExecutor(options.at_once))
        cases = list(itertools.product(FIRSTS, MIXES, LINKS))
        for number in range(options.rounds):
            list(workers.map(take, machine.turns(cases, number)))
    rows = [
        {
            "round_trip": link.round_trip,
            "queue": link.queue,
            "first": first,
            "beside": list(mix),
            "share": round(statistics.median(one.share for one in all_), 2),
            "spread": machine.spread([one.share for one in all_], 2),
            "mbits": [one.mbits for one in all_],
        }
        for (first, mix, link), all_ in sorted(taken.items(), key=lambda item: cases.index(item[0]))
    ]
    print(json.dumps({"environment": described, "mbits": MBITS, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()

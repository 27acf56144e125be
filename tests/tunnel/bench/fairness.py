"""`make bench-fairness`: the shares of two connections on a bottleneck, one of the module and one
of the kernel, or two of the kernel.

Both upload to the same wireguard-go through one emulated path, whose rate and queue they share. The
kernel's connection uses Reno or CUBIC and goes through an interface of wireguard-go. The module's
goes through `watm dial`. Prints JSON with the machine and the commit. The share is the first
connection's part of all arrived data.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace

from watm_test_support import machine
from watm_test_support.paths import path
from watm_test_support.spaces import Space

from ..services import running
from .clients import INSIDE, KERNEL, OURS, SERVER_PORT, Client, client, served

PORTS = (5201, 5202)
MBITS = 20
# The queue in front of the bottleneck holds a round trip and 20 ms.
PATH = ("--round-trip", "20ms", "--mbits", str(MBITS))
# Congestion controls of the kernel's TCP.
CONTROLS = ("reno", "cubic")
# Seconds of warm-up, in which both find their rate.
WARM = 4
# Seconds after the measurement for an upload to end.
PATIENCE = 20


@dataclass(frozen=True)
class Shares:
    """The rate of each connection in Mbit/s."""

    first: float
    second: float

    @property
    def share(self) -> float:
        """Returns the share of the first connection, from 0 to 1."""
        return self.first / (self.first + self.second)


class Bottleneck:
    """Two clients on one path. Use `bottleneck`."""

    def __init__(self, near: Space, clients: dict[str, tuple[Client, Client]]) -> None:
        self._near, self._clients = near, clients

    def take(self, first: str, control: str, seconds: int) -> Shares:
        """Measures the rates of an upload of this kind and of a simultaneous one of the kernel."""
        pair = self._clients[first][0], self._clients[KERNEL][1]
        with contextlib.ExitStack() as stack:
            uploads = [stack.enter_context(_upload(self._near, one, control, seconds)) for one in pair]
            return Shares(*(_arrived(upload, seconds) for upload in uploads))


@contextlib.contextmanager
def bottleneck() -> Iterator[Bottleneck]:
    """Runs the path, both clients, and a server for each connection, for the length of the block."""
    kinds = (KERNEL, OURS)
    with served(kinds) as (near, far, tunnels), contextlib.ExitStack() as stack:
        for space in (near, far):
            # The next connection must not know the path from an earlier one.
            space.run("sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1")
        for port in PORTS:
            stack.enter_context(running(far, "iperf3", "-s", "-J", "-p", port, listens=port))
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        between = stack.enter_context(path(SERVER_PORT, *PATH, inside=near.command))
        clients = {}
        for kind in kinds:
            tunnel = replace(tunnels[kind], endpoint=between.port)
            one = stack.enter_context(client(kind, near, tunnel, f"{INSIDE}:{PORTS[0]}", folder))
            clients[kind] = one, replace(one, port=PORTS[1])
        yield Bottleneck(near, clients)


@contextlib.contextmanager
def _upload(near: Space, one: Client, control: str, seconds: int) -> Iterator[subprocess.Popen]:
    command = ["iperf3", "-c", one.host, "-p", str(one.port), "-t", str(seconds), "-O", str(WARM), "-J"]
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
    output, _ = upload.communicate(timeout=WARM + seconds + PATIENCE)
    result = json.loads(output)
    assert "error" not in result, result["error"]
    return result["server_output_json"]["end"]["sum_received"]["bits_per_second"] / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench-fairness", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="each has every pair once (%(default)s)")
    parser.add_argument("--seconds", type=int, default=20, help="of each measurement (%(default)s)")
    options = parser.parse_args()
    taken: dict[tuple[str, str], list[Shares]] = {}
    with bottleneck() as shared:
        pairs = [(first, control) for control in CONTROLS for first in (KERNEL, OURS)]
        for number in range(options.rounds):
            for first, control in machine.turns(pairs, number):
                one = shared.take(first, control, options.seconds)
                taken.setdefault((first, control), []).append(one)
                print(f"{first} beside {control}: {one.first:.1f} and {one.second:.1f}", file=sys.stderr, flush=True)
    rows = [
        {
            "first": first,
            "second": f"{KERNEL}, {control}",
            "share": round(statistics.median(one.share for one in all_), 2),
            "spread": machine.spread([one.share for one in all_], 2),
            "mbits": [[one.first, one.second] for one in all_],
        }
        for (first, control), all_ in taken.items()
    ]
    print(json.dumps({"environment": machine.described(), "path": " ".join(PATH), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
